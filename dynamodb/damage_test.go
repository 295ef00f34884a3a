//go:build integration

package dynamodb_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	aws_dynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/damagetest"
	"github.com/ashlar-dev/storage/internal/testenv"
	"github.com/ashlar-dev/storage/resourcepb"
)

func TestDamage(t *testing.T) {
	t.Parallel()
	damagetest.Run(t, func(t *testing.T) damagetest.Harness {
		server := testenv.DynamoDB(t)
		prefix := server.Prefix(t)
		b, err := storage.Open(t.Context(), server.StoreURLIn(t, prefix, "poll=10ms", "idle-poll=200ms"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		client := rawClient(server)
		return damagetest.Harness{Backend: b, Replace: func(t *testing.T, id *resourcepb.ID, data []byte) {
			_, err := client.UpdateItem(t.Context(), &aws_dynamodb.UpdateItemInput{
				TableName: &server.Table,
				Key: map[string]types.AttributeValue{
					"pk": &types.AttributeValueMemberB{Value: []byte(prefix + "\x00r" + id.Type.Group + "\x00" + id.Type.Kind)},
					"sk": &types.AttributeValueMemberB{Value: []byte(id.Tenancy.Partition + "\x00" + id.Tenancy.Namespace + "\x00" + id.Name)},
				},
				UpdateExpression:          aws.String("SET d = :d"),
				ConditionExpression:       aws.String("attribute_exists(u)"),
				ExpressionAttributeValues: map[string]types.AttributeValue{":d": &types.AttributeValueMemberB{Value: append([]byte{0}, data...)}},
			})
			if err != nil {
				t.Fatal(err)
			}
		}}
	})
}

// rawClient is a client of the server's, to change items behind the adapter's back.
func rawClient(server *testenv.DynamoDBServer) *aws_dynamodb.Client {
	return aws_dynamodb.New(aws_dynamodb.Options{
		Region: server.Region, BaseEndpoint: &server.Endpoint,
		Credentials: credentials.NewStaticCredentialsProvider("emulator", "emulator", ""),
	})
}
