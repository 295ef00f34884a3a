//go:build integration

package dynamodb_test

import (
	"encoding/binary"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/resourcepb"
)

// replaceData replaces the encoded resource of an item and gives it another version, like a write of the adapter.
func replaceData(t testing.TB, server *env.DynamoDBServer, prefix string, id *resourcepb.ID, data []byte) {
	client := rawClient(server)
	sk := []byte(id.Tenancy.Partition + "\x00" + id.Tenancy.Namespace + "\x00" + id.Name)
	at := map[string]types.AttributeValue{
		"pk": &types.AttributeValueMemberB{Value: []byte(prefix + "\x00r" + string(rune(bucketOf(sk))) + id.Type.Group + "\x00" + id.Type.Kind)},
		"sk": &types.AttributeValueMemberB{Value: sk},
	}
	old, err := client.GetItem(t.Context(), &awsdynamodb.GetItemInput{TableName: &server.Table, Key: at, ConsistentRead: aws.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}
	stamp := old.Item["v"].(*types.AttributeValueMemberB).Value
	stamp[1]++                                                                    // of the token
	binary.BigEndian.PutUint64(stamp[17:], binary.BigEndian.Uint64(stamp[17:])+1) // the count
	_, err = client.UpdateItem(t.Context(), &awsdynamodb.UpdateItemInput{
		TableName: &server.Table, Key: at,
		UpdateExpression: aws.String("SET v = :v, d = :d"),
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":v": &types.AttributeValueMemberB{Value: stamp},
			":d": &types.AttributeValueMemberB{Value: append([]byte{0}, data...)},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// rawClient returns a client that changes items without the adapter.
func rawClient(server *env.DynamoDBServer) *awsdynamodb.Client {
	return awsdynamodb.New(awsdynamodb.Options{
		Region: server.Region, BaseEndpoint: &server.Endpoint,
		Credentials: credentials.NewStaticCredentialsProvider("emulator", "emulator", ""),
	})
}
