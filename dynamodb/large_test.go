package dynamodb_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/dynamodb"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// content returns a payload of a size that is unique to its generation: repeated bytes if compressible, random bytes otherwise.
func content(generation, size int, compressible bool) []byte {
	random := rand.NewChaCha8([32]byte{byte(generation), byte(generation >> 8)})
	data := make([]byte, size)
	if !compressible {
		_, _ = random.Read(data) // never fails
		return data
	}
	pattern := make([]byte, 64)
	_, _ = random.Read(pattern)
	for at := 0; at < size; at += len(pattern) {
		copy(data[at:], pattern)
	}
	return data
}

// whole returns an error if a payload is not the complete payload of one generation.
func whole(res *resourcepb.Resource, sizes []int) error {
	data := res.GetData().GetValue()
	var generation int
	if _, err := fmt.Sscan(res.GetGeneration(), &generation); err != nil {
		return err
	}
	if want := content(generation, sizes[generation%len(sizes)], generation%2 == 0); !bytes.Equal(data, want) {
		return fmt.Errorf("generation %d has %d bytes of another generation", generation, len(data))
	}
	return nil
}

// scaled divides all sizes of a table and of its handle by n. TestCommitWithParts and TestLargestCommit use the sizes of DynamoDB.
func scaled(t *testing.T, n int) (*dynamofake.Server, *dynamodb.Backend) {
	t.Helper()
	s := dynamofake.New(t)
	s.SetSizeLimits(400<<10/n, 4<<20/n)
	b := handle(t, s)
	dynamodb.SetSizes(b, n)
	return s, b
}

// A resource grows and shrinks between one byte and the size of almost three parts, so the number of its parts changes all the time.
// Readers, lists and watches never observe a partial resource.
func TestSizesAndParts(t *testing.T) {
	t.Parallel()
	const scale = 16
	sizes := []int{1, 1<<20/scale - 200, 300, 500 << 10 / scale, 1023, 900 << 10 / scale, 390 << 10 / scale, 70_000 / scale, 800 << 10 / scale, 1024}
	s, b := scaled(t, scale)
	w := watch(t, b)
	afterSnapshot(t, w)
	const generations = 22
	res := box("a", content(0, sizes[0], true))
	res.Generation = "0"
	res = fixture.Write(t, b, res)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	finish := sync.OnceFunc(func() { close(stop); readers.Wait() })
	defer finish()
	for _, read := range []func() (*resourcepb.Resource, error){
		func() (*resourcepb.Resource, error) {
			return b.Read(t.Context(), storage.StrongConsistency, res.GetId())
		},
		func() (*resourcepb.Resource, error) {
			list, err := b.List(t.Context(), storage.StrongConsistency, boxType, tenancy, "")
			if err != nil || len(list) != 1 {
				return nil, fmt.Errorf("%d resources: %w", len(list), err)
			}
			return list[0], nil
		},
	} {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				res, err := read()
				if err == nil {
					err = whole(res, sizes)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	current := res
	for g := 1; g < generations; g++ {
		change := box("a", content(g, sizes[g%len(sizes)], g%2 == 0))
		change.Generation, change.Version = fmt.Sprint(g), current.GetVersion()
		current = fixture.Write(t, b, change)
		if err := whole(current, sizes); err != nil {
			t.Fatal(err)
		}
	}
	finish()
	fixture.Remove(t, b, current)
	for g := range generations {
		res := fixture.Next(t, w).GetUpsert().GetResource()
		if res.GetGeneration() != fmt.Sprint(g) {
			t.Fatalf("got generation %s, expected %d", res.GetGeneration(), g)
		}
		if err := whole(res, sizes); err != nil {
			t.Fatal(err)
		}
	}
	last := fixture.Next(t, w).GetDelete().GetResource()
	if err := whole(last, sizes); err != nil || last.GetVersion() != current.GetVersion() {
		t.Errorf("the deletion does not contain the last state: %v", err)
	}
	if s.Items('p') == 0 {
		t.Error("no resource was stored in parts")
	}
	s.Expire('p')
	if n := s.Items('p'); n != 0 {
		t.Errorf("%d parts have no expiry", n)
	}
}

// A watch that starts from an old cursor finds the parts of resources that were overwritten since.
func TestHistoryOfParts(t *testing.T) {
	t.Parallel()
	const scale = 16
	_, b := scaled(t, scale)
	w := watch(t, b)
	afterSnapshot(t, w)
	cursor := w.Cursor()
	sizes := []int{700 << 10 / scale, 10, 1<<20/scale - 200}
	var current *resourcepb.Resource
	for g := range 6 {
		change := box("a", content(g, sizes[g%len(sizes)], g%2 == 0))
		change.Generation, change.Version = fmt.Sprint(g), current.GetVersion()
		current = fixture.Write(t, b, change)
	}
	late, err := b.WatchFrom(t.Context(), boxType, tenancy, "", cursor)
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	for range 6 {
		if err := whole(fixture.Next(t, late).GetUpsert().GetResource(), sizes); err != nil {
			t.Fatal(err)
		}
	}
}

// A transaction writes, replaces and deletes resources with parts.
func TestCommitWithParts(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b := handle(t, s)
	var ops []storage.Op
	for i := range 4 {
		stored := fixture.Write(t, b, box(fmt.Sprint("big-", i), content(i+1, 900<<10, false)))
		if i%2 == 0 {
			ops = append(ops, storage.Op{Delete: stored.GetId(), Version: stored.GetVersion()})
			continue
		}
		small := box(fmt.Sprint("big-", i), content(i, 450<<10, false))
		small.Version = stored.GetVersion()
		ops = append(ops, storage.Op{Write: small})
	}
	if _, err := b.Commit(t.Context(), ops); err != nil {
		t.Fatal(err)
	}
	list, err := b.List(t.Context(), storage.StrongConsistency, boxType, tenancy, "")
	if err != nil || len(list) != 2 {
		t.Fatalf("%d resources remain, expected 2: %v", len(list), err)
	}
	for _, res := range list {
		if len(res.GetData().GetValue()) != 450<<10 {
			t.Errorf("%s has %d bytes", res.GetId().GetName(), len(res.GetData().GetValue()))
		}
		fixture.Remove(t, b, res)
	}
	s.Expire('p')
	if n := s.Items('p'); n != 0 {
		t.Errorf("%d parts have no expiry", n)
	}
}

// A page of a list is limited by the size of its resources, not by their compressed size in the table.
func TestPageOfCompressibleResources(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	s.SetQueryPage(100)
	b := handle(t, s)
	for i := range 20 {
		fixture.Write(t, b, box(string(rune('a'+i)), content(i, 1000<<10, true)))
	}
	page, err := b.ListPage(t.Context(), boxType, tenancy, "", storage.ListOptions{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	for _, res := range page.Resources {
		size += proto.Size(res)
	}
	if size > 6<<20 {
		t.Errorf("a page of %d resources has %d bytes", len(page.Resources), size)
	}
}

// A resource with a missing part is damaged. Reads report that at once, without repeating the read until the deadline.
func TestDeletedPart(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b := handle(t, s, withBuckets(1))
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
	first, err := db.GetItem(t.Context(), &awsdynamodb.GetItemInput{
		TableName: aws.String(dynamofake.Table), Key: at("test\x00p"+string(token), "\x00"), ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		t.Fatal(err)
	}
	remaining := slices.Concat(first.Item["d"].(*types.AttributeValueMemberB).Value, head.Item["d"].(*types.AttributeValueMemberB).Value)
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
		} else if !bytes.Equal(damaged.Data, remaining) || !strings.Contains(err.Error(), ": 2 of 2") {
			t.Errorf("read, %v: %v, with %d bytes; expected the %d bytes beside the missing part", consistency, err, len(damaged.Data), len(remaining))
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
