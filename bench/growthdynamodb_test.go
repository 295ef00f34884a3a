//go:build integration

package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/ashlar-dev/storage/internal/test/env"
)

// BenchmarkGrowthDynamoDB grows a store beside a table of items and of edges from owners, read and written by the SDK on the same
// emulator.
func BenchmarkGrowthDynamoDB(b *testing.B) { once(b, func() { growDynamoDB(b) }) }

func init() {
	openers["dynamodb"] = func(where string) (growing, error) { return openGrowingDynamoDB(where) }
}

func growDynamoDB(b *testing.B) {
	server := env.DynamoDB(b)
	where := [2]string{server.Endpoint + " raw-" + server.Prefix(b), server.StoreURL(b)}
	raw := must(openGrowingDynamoDB(where[0]))
	b.Cleanup(func() { raw.close() })
	ours := must(openGrowing(where[1], nil))
	b.Cleanup(func() { ours.close() })
	(&growths{
		name: "dynamodb", shown: "DynamoDB Local", raw: "the SDK", most: 100_000,
		notes: []string{
			"Memory is the peak of a process that reads, watches and lists everything in pages.",
			"It ends at 100,000: the emulator is slow to fill.",
			"AWS is no emulator: only the shape of the lines counts.",
		},
		sides:  [2]growing{raw, ours},
		memory: peakMemory("dynamodb", where),
	}).run(b)
}

// growingDynamoDB stores items in the partition "thing", sorted by name, and the children of each owner in a partition of their
// own.
type growingDynamoDB struct {
	client      *awsdynamodb.Client
	connections *http.Transport
	table       *string
	data        []byte
	versions    []int // of the items that this process has added
}

func openGrowingDynamoDB(where string) (*growingDynamoDB, error) {
	ctx := context.Background()
	endpoint, table, _ := strings.Cut(where, " ")
	connections := http.DefaultTransport.(*http.Transport).Clone()
	cfg, err := config.LoadDefaultConfig(ctx, config.WithRegion("us-east-1"))
	if err != nil {
		return nil, err
	}
	s := &growingDynamoDB{connections: connections, table: aws.String(table), data: payload(600),
		client: awsdynamodb.NewFromConfig(cfg, func(o *awsdynamodb.Options) {
			o.BaseEndpoint, o.HTTPClient = aws.String(endpoint), &http.Client{Transport: connections}
		})}
	_, err = s.client.CreateTable(ctx, &awsdynamodb.CreateTableInput{TableName: s.table, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String("p"), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: aws.String("k"), AttributeType: types.ScalarAttributeTypeS},
		},
		KeySchema: []types.KeySchemaElement{
			{AttributeName: aws.String("p"), KeyType: types.KeyTypeHash}, {AttributeName: aws.String("k"), KeyType: types.KeyTypeRange},
		},
		StreamSpecification: &types.StreamSpecification{StreamEnabled: aws.Bool(true), StreamViewType: types.StreamViewTypeNewAndOldImages}})
	var there *types.ResourceInUseException
	if errors.As(err, &there) {
		err = nil
	}
	return s, err
}

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
func whole(n int) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.Itoa(n)}
}

func (s *growingDynamoDB) thing(i, version int) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"p": text("thing"), "k": text(nameOf(i)), "v": whole(version), "d": &types.AttributeValueMemberB{Value: s.data}}
}

func (s *growingDynamoDB) add(from, to int, done func(n int)) error {
	for range to - from {
		s.versions = append(s.versions, 1)
	}
	// Two items for each; the service accepts 25 in a request.
	return inBatches(from, to, 12, 8, done, func(from, to int) error {
		var puts []types.WriteRequest
		for i := from; i < to; i++ {
			puts = append(puts, types.WriteRequest{PutRequest: &types.PutRequest{Item: s.thing(i, 1)}})
			if owner, owned := ownerOf(i); owned {
				puts = append(puts, types.WriteRequest{PutRequest: &types.PutRequest{Item: map[string]types.AttributeValue{
					"p": text("owner " + nameOf(owner)), "k": text(nameOf(i))}}})
			}
		}
		out, err := s.client.BatchWriteItem(context.Background(), &awsdynamodb.BatchWriteItemInput{
			RequestItems: map[string][]types.WriteRequest{*s.table: puts}})
		if err == nil && len(out.UnprocessedItems) > 0 {
			err = errors.New("the service has not processed all items")
		}
		return err
	})
}

func (s *growingDynamoDB) settle() error { return nil }

func (s *growingDynamoDB) read(i int) error {
	out, err := s.client.GetItem(context.Background(), &awsdynamodb.GetItemInput{TableName: s.table, ConsistentRead: aws.Bool(true),
		Key: map[string]types.AttributeValue{"p": text("thing"), "k": text(nameOf(i))}})
	if err == nil && len(out.Item) == 0 {
		err = fmt.Errorf("no %s", nameOf(i))
	}
	return err
}

func (s *growingDynamoDB) write(i int) error {
	_, err := s.client.PutItem(context.Background(), &awsdynamodb.PutItemInput{TableName: s.table, Item: s.thing(i, s.versions[i]+1),
		ConditionExpression: aws.String("v = :v"), ExpressionAttributeValues: map[string]types.AttributeValue{":v": whole(s.versions[i])}})
	if err == nil {
		s.versions[i]++
	}
	return err
}

// query reads everything that a condition matches, or one page with that many items.
func (s *growingDynamoDB) query(limit int, condition string, values map[string]types.AttributeValue) (n int, err error) {
	in := &awsdynamodb.QueryInput{TableName: s.table, ConsistentRead: aws.Bool(true), KeyConditionExpression: aws.String(condition),
		ExpressionAttributeValues: values}
	if limit > 0 {
		in.Limit = aws.Int32(int32(limit))
	}
	for {
		out, err := s.client.Query(context.Background(), in)
		if err != nil {
			return n, err
		}
		n += len(out.Items)
		if in.ExclusiveStartKey = out.LastEvaluatedKey; len(in.ExclusiveStartKey) == 0 || limit > 0 {
			return n, nil
		}
	}
}

func (s *growingDynamoDB) list(prefix string) (int, error) {
	return s.query(0, "p = :p and begins_with(k, :k)", map[string]types.AttributeValue{":p": text("thing"), ":k": text(prefix)})
}

// watch finds the table's stream, which its user would read, and then reads the items.
func (s *growingDynamoDB) watch(prefix string) (int, error) {
	if _, err := s.client.DescribeTable(context.Background(), &awsdynamodb.DescribeTableInput{TableName: s.table}); err != nil {
		return 0, err
	}
	return s.list(prefix)
}

func (s *growingDynamoDB) owned(i int) (int, error) {
	return s.query(0, "p = :p", map[string]types.AttributeValue{":p": text("owner " + nameOf(i))})
}

func (s *growingDynamoDB) first(limit int) (int, error) { return s.pageAfter(" ", limit) }

func (s *growingDynamoDB) pageAfter(after string, limit int) (int, error) {
	if after == "" {
		after = " " // the service refuses an empty sort key
	}
	return s.query(limit, "p = :p and k > :k", map[string]types.AttributeValue{":p": text("thing"), ":k": text(after)})
}

func (s *growingDynamoDB) walk(limit int) (int, error) { return walkNames(limit, s.pageAfter) }

func (s *growingDynamoDB) close() error {
	s.connections.CloseIdleConnections()
	return nil
}
