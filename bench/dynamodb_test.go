//go:build integration

package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	_ "github.com/ashlar-dev/storage/dynamodb"
	"github.com/ashlar-dev/storage/internal/test/env"
)

// BenchmarkDynamoDB compares with one conditional PutItem, and one strong GetItem, for each key, by the SDK against the same
// emulator.
func BenchmarkDynamoDB(b *testing.B) { once(b, func() { dynamodb(b) }) }

func dynamodb(b *testing.B) {
	ctx := context.Background()
	server := env.DynamoDB(b)
	backend := open(b, server.StoreURL(b))
	follow(b, backend)
	h := fill(b, backend, "dynamodb", maxCallers(), 500)

	cfg := must(config.LoadDefaultConfig(ctx, config.WithRegion("us-east-1")))
	client := awsdynamodb.NewFromConfig(cfg, func(o *awsdynamodb.Options) { o.BaseEndpoint = aws.String(server.Endpoint) })
	table := aws.String("raw-" + server.Prefix(b))
	must(client.CreateTable(ctx, &awsdynamodb.CreateTableInput{TableName: table, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("k"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("k"), KeyType: types.KeyTypeHash}},
		StreamSpecification:  &types.StreamSpecification{StreamEnabled: aws.Bool(true), StreamViewType: types.StreamViewTypeNewAndOldImages}}))
	b.Cleanup(func() {
		_, _ = client.DeleteTable(context.Background(), &awsdynamodb.DeleteTableInput{TableName: table})
	})

	data := payload(600)
	key := func(caller, i int) types.AttributeValue {
		return &types.AttributeValueMemberS{Value: fmt.Sprintf("raw-%d-%d", caller, i%keysPerCaller)}
	}
	versions := make([][keysPerCaller]int, 256)
	put := func(caller, i int) error {
		at := &versions[caller][i%keysPerCaller]
		in := &awsdynamodb.PutItemInput{TableName: table, Item: map[string]types.AttributeValue{"k": key(caller, i),
			"v": &types.AttributeValueMemberN{Value: fmt.Sprint(*at + 1)}, "d": &types.AttributeValueMemberB{Value: data}}}
		if *at == 0 {
			in.ConditionExpression = aws.String("attribute_not_exists(k)")
		} else {
			in.ConditionExpression = aws.String("v = :v")
			in.ExpressionAttributeValues = map[string]types.AttributeValue{":v": &types.AttributeValueMemberN{Value: fmt.Sprint(*at)}}
		}
		_, err := client.PutItem(ctx, in)
		if err == nil {
			*at++
		}
		return err
	}
	var filling sync.WaitGroup
	for c := range versions {
		filling.Go(func() {
			for k := range keysPerCaller {
				if err := put(c, k); err != nil {
					b.Error(err)
				}
			}
		})
	}
	filling.Wait()
	compare(b, "dynamodb", "write", []int{1, 16, 64}, side{"sdk", put}, side{"ashlar", h.write})
	compare(b, "dynamodb", "read", []int{1, 16, 64, 256}, side{"sdk", func(caller, i int) error {
		_, err := client.GetItem(ctx, &awsdynamodb.GetItemInput{TableName: table, ConsistentRead: aws.Bool(true),
			Key: map[string]types.AttributeValue{"k": key(caller, i)}})
		return err
	}}, side{"ashlar", h.read})
	events, writes := eventLatency(b, backend, backend, "event", scaled(200))
	fmt.Printf("dynamodb/event: p50 %v p99 %v after the acknowledgement; a write takes %v\n",
		percentile(events, 50), percentile(events, 99), percentile(writes, 50))
}
