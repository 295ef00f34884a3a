package dynamodb

import (
	"context"
	"fmt"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/ashlar-dev/storage/dynamodb/internal/request"
	"github.com/ashlar-dev/storage/internal/scratchstore"
)

func init() { scratchstore.Register(newScratch, "dynamodb") }

// newScratch names a table, with a prefix for each store.
func newScratch(u *url.URL, name string) (*scratchstore.Space, error) {
	store := func(number int) *url.URL {
		other := *u
		query := other.Query()
		query.Del("create")
		other.Host, other.Path, other.RawPath, other.RawQuery = u.Host+"_"+name, fmt.Sprint("/", number), "", query.Encode()
		return &other
	}
	if _, _, err := parseURL(u); err != nil {
		return nil, err
	}
	opts, s, err := parseURL(store(0))
	if err != nil {
		return nil, err // the table's name is too long
	}
	return &scratchstore.Space{
		Location: "the table " + opts.Table,
		Store:    store,
		Drop: func(ctx context.Context) error {
			cfg, transport, err := s.load(ctx)
			if err != nil {
				return err
			}
			defer transport.CloseIdleConnections()
			db := dynamodb.NewFromConfig(cfg, func(o *dynamodb.Options) { s.apply(&o.BaseEndpoint) })
			_, err = db.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &opts.Table})
			if request.HasCode(err, "ResourceNotFoundException") {
				return nil
			}
			return err
		},
		// Names of keys are encoded in what is sent; the operation is not.
		Requests: []string{
			"DynamoDB_20120810.TransactWriteItems", "DynamoDB_20120810.PutItem", "DynamoDB_20120810.UpdateItem",
			"DynamoDB_20120810.DeleteItem", "DynamoDB_20120810.GetItem",
		},
	}, nil
}
