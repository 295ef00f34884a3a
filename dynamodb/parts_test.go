package dynamodb_test

import (
	"errors"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// A resource of which somebody has deleted a part is damaged, and says so at once: it is not read again and again until the
// deadline.
func TestDeletedPart(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b := handle(t, s)
	large := fixture.Write(t, b, box("large", content(1, 900<<10, false)))
	db, _ := s.Clients(t)
	at := func(pk, sk string) map[string]types.AttributeValue {
		return map[string]types.AttributeValue{
			"pk": &types.AttributeValueMemberB{Value: []byte(pk)}, "sk": &types.AttributeValueMemberB{Value: []byte(sk)},
		}
	}
	head, err := db.GetItem(t.Context(), &awsdynamodb.GetItemInput{
		TableName: aws.String(dynamofake.Table), Key: at("test\x00rtest\x00Box", "default\x00default\x00large"), ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		t.Fatal(err)
	}
	token := head.Item["v"].(*types.AttributeValueMemberB).Value[1:17]
	if _, err := db.DeleteItem(t.Context(), &awsdynamodb.DeleteItemInput{
		TableName: aws.String(dynamofake.Table), Key: at("test\x00p"+string(token), "\x01"),
	}); err != nil {
		t.Fatal(err)
	}
	for _, consistency := range []storage.ReadConsistency{storage.StrongConsistency, storage.EventualConsistency} {
		var damaged *storage.DamagedError
		_, err := b.Read(t.Context(), consistency, large.GetId())
		if !errors.As(err, &damaged) || damaged.Version != large.GetVersion() || damaged.ID.GetUid() != large.GetId().GetUid() {
			t.Errorf("read, %v: %v; expected a DamagedError with the version and the uid", consistency, err)
		}
		if _, err = b.List(t.Context(), consistency, boxType, tenancy, ""); !errors.As(err, &damaged) {
			t.Errorf("list, %v: %v; expected a DamagedError", consistency, err)
		}
	}
	if err := b.DeleteCAS(t.Context(), large.GetId(), large.GetVersion()); err != nil {
		t.Error(err)
	}
	afterSnapshot(t, watch(t, b))
}
