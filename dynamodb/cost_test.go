//go:build integration

package dynamodb_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"regexp"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/smithy-go/middleware"
	"golang.org/x/sync/errgroup"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/dynamodb"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestCosts compares the README's table of request units with the emulator's figures.
func TestCosts(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]units{}
	for _, row := range regexp.MustCompile(`(?m)^\| ([A-Z][^|]+) \| ([0-9.]+) \| ([0-9.]+) \| ([0-9.]*) ?\|$`).FindAllStringSubmatch(string(readme), -1) {
		documented[row[1]] = units{row[2], row[3], row[4]}
	}
	server := env.DynamoDB(t)
	cfg := aws.Config{
		Region: server.Region, BaseEndpoint: &server.Endpoint,
		Credentials: credentials.NewStaticCredentialsProvider("emulator", "emulator", ""),
	}
	m := &meter{}
	client := awsdynamodb.NewFromConfig(cfg, m.option)
	b, err := dynamodb.New(t.Context(), awsdynamodb.NewFromConfig(cfg, m.option, m.ofBackend), dynamodbstreams.NewFromConfig(cfg), &dynamodb.Options{
		Table: server.Table, Prefix: server.Prefix(t), Spent: m.addSpent,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	small, large := content(1, 500, false), content(1, 1000<<10, false)
	fill(t, b, small) // the boxes use all buckets
	owner := fixture.Write(t, b, box("owner", small))
	owned := box("owned", small)
	owned.Owner = owner.GetId()
	big := fixture.Write(t, b, box("big", large))
	few := func(bucket byte, prefix string) *resourcepb.Resource { // of another type
		res := boxIn(bucket, prefix)
		res.Id.Type.Kind, res.Data.Value = "Few", small
		return res
	}
	fixture.Write(t, b, few(0, "few-"))
	listKind := func(kind string, want int) {
		t.Helper()
		all, err := b.List(t.Context(), storage.StrongConsistency, storage.UnversionedType{Group: "test", Kind: kind}, tenancy, "")
		if err != nil || len(all) != want {
			t.Fatal(len(all), err)
		}
	}
	var res *resourcepb.Resource
	byHand := newHandWritten(t, client, server.Table, server.Prefix(t))
	for _, c := range []struct {
		call string
		do   func()
	}{
		{"WriteCAS, creation without an owner", func() { res = fixture.Write(t, b, box("a", small)) }},
		{"WriteCAS, same owner or none", func() { res = fixture.Write(t, b, res) }},
		{"WriteCAS of 900 bytes, no owner", func() { fixture.Write(t, b, box("900", content(1, 900, false))) }},
		{"WriteCAS, first creation in a bucket of a type", func() { fixture.Write(t, b, few(1, "few-")) }},
		{"WriteCAS, creation with an owner", func() { owned = fixture.Write(t, b, owned) }},
		{"WriteCAS, another owner", func() { owned.Owner = res.GetId(); owned = fixture.Write(t, b, owned) }},
		{"Read, strong", func() { read(t, b, storage.StrongConsistency, res) }},
		{"Read, eventual", func() { read(t, b, storage.EventualConsistency, res) }},
		{"List of none, strong", func() { listKind("None", 0) }},
		{"List of 2 small resources, strong", func() { listKind("Few", 2) }},
		{"OwnerReferences of 1", func() {
			if children, err := b.OwnerReferences(t.Context(), res.GetId()); err != nil || len(children) != 1 {
				t.Fatal(children, err)
			}
		}},
		{"DeleteCAS, with an owner", func() { fixture.Remove(t, b, owned) }},
		{"DeleteCAS, without an owner", func() { fixture.Remove(t, b, res) }},
		{"Commit of 2 writes", func() {
			if _, err := b.Commit(t.Context(), []storage.Op{{Write: box("b", small)}, {Write: box("d", small)}}); err != nil {
				t.Fatal(err)
			}
		}},
		{"WatchList of 2 small resources", func() {
			for range 3 { // the first one starts the reader, whose ticks are more
				m.reset()
				w, err := b.WatchList(t.Context(), storage.UnversionedType{Group: "test", Kind: "Few"}, tenancy, "")
				if err != nil {
					t.Fatal(err)
				}
				defer w.Close()
				fixture.Eventually(t, "the tick after the snapshot", func() bool { total, _ := m.read(); return total >= 5 })
			}
		}},
		{"Read of 1000 KiB, not compressible, strong", func() { read(t, b, storage.StrongConsistency, big) }},
		{"List of 10 in 10 buckets, strong", func() {
			for bucket := range byte(8) {
				fixture.Write(t, b, few(2+bucket, "few-"))
			}
			m.reset()
			listKind("Few", 10)
		}},
		{"List of 1000, strong", func() {
			if all, err := b.List(t.Context(), storage.StrongConsistency, boxType, tenancy, "many-"); err != nil || len(all) != 1000 {
				t.Fatal(len(all), err)
			}
		}},
	} {
		m.reset()
		c.do()
		total, transactions := m.read()
		spent := unitsOf(total, transactions, byHand[c.call])
		if documented[c.call] != spent {
			t.Errorf("%s consumes %q units, the README says %q", c.call, spent, documented[c.call])
		}
		delete(documented, c.call)
	}
	for call := range documented {
		t.Errorf("the README's %q is not measured", call)
	}
	fixture.Eventually(t, "Spent has received all units", func() bool { m.mu.Lock(); defer m.mu.Unlock(); return m.spent == m.ofHandle })
}

func read(t *testing.T, b storage.Backend, consistency storage.ReadConsistency, res *resourcepb.Resource) {
	t.Helper()
	if _, err := b.Read(t.Context(), consistency, res.GetId()); err != nil {
		t.Fatal(err)
	}
}

// units are the consumed units of a call: as the emulator counts them, on AWS, where the items of a transaction count twice, and with
// a hand-written schema of one item for each resource, "" if that was not measured.
type units struct{ emulator, aws, byHand string }

func unitsOf(total, transactions, byHand float64) units {
	text := func(n float64) string { return fmt.Sprint(math.Round(n*10) / 10) }
	u := units{emulator: text(total), aws: text(total + transactions)}
	if byHand > 0 {
		u.byHand = text(byHand)
	}
	return u
}

// meter counts consumed units. From time to time, a handle reads the fence and the mark of the registry before a write: two strong reads of
// one unit, which are no part of a call. If that happens while a type is entered into the registry, the handle reads the entries again before
// the next one.
type meter struct {
	mu                  sync.Mutex
	total, transactions float64 // since the reset, without those reads
	ofHandle, spent     float64 // all units of the handle's requests, and those that Options.Spent received
}

func (m *meter) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.total, m.transactions = 0, 0
}

func (m *meter) read() (total, transactions float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.total, m.transactions
}

func (m *meter) addSpent(units float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.spent += units
}

// option makes a client report to the meter.
func (m *meter) option(o *awsdynamodb.Options) {
	onResult(o, func(in, result any) {
		m.mu.Lock()
		defer m.mu.Unlock()
		units := consumed(result)
		if _, ok := result.(*awsdynamodb.TransactWriteItemsOutput); ok {
			m.transactions += units
		}
		m.total += units - permissionReads(in)
	})
}

// ofBackend makes a client report to the meter what Options.Spent should receive.
func (m *meter) ofBackend(o *awsdynamodb.Options) {
	onResult(o, func(_, result any) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.ofHandle += consumed(result)
	})
}

// onResult calls report with the input and the result of each call that succeeds.
func onResult(o *awsdynamodb.Options, report func(in, result any)) {
	name := fmt.Sprint("Report", len(o.APIOptions))
	count := middleware.InitializeMiddlewareFunc(name, func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
		out, metadata, err := next.HandleInitialize(ctx, in)
		if err == nil {
			report(in.Parameters, out.Result)
		}
		return out, metadata, err
	})
	o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error { return stack.Initialize.Add(count, middleware.Before) })
}

// consumed returns the units that an answer reports.
func consumed(result any) float64 {
	var all []types.ConsumedCapacity
	one := func(c *types.ConsumedCapacity) {
		if c != nil {
			all = append(all, *c)
		}
	}
	switch out := result.(type) {
	case *awsdynamodb.GetItemOutput:
		one(out.ConsumedCapacity)
	case *awsdynamodb.PutItemOutput:
		one(out.ConsumedCapacity)
	case *awsdynamodb.UpdateItemOutput:
		one(out.ConsumedCapacity)
	case *awsdynamodb.DeleteItemOutput:
		one(out.ConsumedCapacity)
	case *awsdynamodb.QueryOutput:
		one(out.ConsumedCapacity)
	case *awsdynamodb.ScanOutput:
		one(out.ConsumedCapacity)
	case *awsdynamodb.BatchGetItemOutput:
		all = out.ConsumedCapacity
	case *awsdynamodb.TransactGetItemsOutput:
		all = out.ConsumedCapacity
	case *awsdynamodb.TransactWriteItemsOutput:
		all = out.ConsumedCapacity
	}
	units := 0.0
	for i := range all {
		units += aws.ToFloat64(all[i].CapacityUnits)
	}
	return units
}

// permissionReads returns the units of a request's reads of the fence and of the mark.
func permissionReads(in any) (units float64) {
	var keys []map[string]types.AttributeValue
	switch in := in.(type) {
	case *awsdynamodb.GetItemInput:
		keys = append(keys, in.Key)
	case *awsdynamodb.BatchGetItemInput:
		for _, of := range in.RequestItems {
			keys = append(keys, of.Keys...)
		}
	case *awsdynamodb.TransactGetItemsInput: // the mark, and the entries that it had confirmed before
		return 2 * float64(len(in.TransactItems))
	}
	for _, key := range keys {
		if sk, ok := key["sk"].(*types.AttributeValueMemberB); ok && (string(sk.Value) == "fence" || string(sk.Value) == "store") {
			units++
		}
	}
	return units
}

// fill creates the resources of the largest list.
func fill(t *testing.T, b *dynamodb.Backend, data []byte) {
	t.Helper()
	for from := 0; from < 1000; from += 25 {
		var ops []storage.Op
		for i := from; i < from+25; i++ {
			ops = append(ops, storage.Op{Write: box(fmt.Sprintf("many-%04d", i), data)})
		}
		if _, err := b.Commit(t.Context(), ops); err != nil {
			t.Fatal(err)
		}
	}
}

// newHandWritten measures calls with one item for each resource: its key, and the bytes of its payload.
func newHandWritten(t *testing.T, db *awsdynamodb.Client, table, prefix string) map[string]float64 {
	t.Helper()
	key := func(name string) map[string]types.AttributeValue {
		return map[string]types.AttributeValue{
			"pk": &types.AttributeValueMemberB{Value: []byte(prefix + "Box")},
			"sk": &types.AttributeValueMemberB{Value: []byte("default/default/" + name)},
		}
	}
	put := func(name string, size int) float64 {
		it := key(name)
		it["d"] = &types.AttributeValueMemberB{Value: content(1, size, false)}
		out, err := db.PutItem(t.Context(), &awsdynamodb.PutItemInput{TableName: &table, Item: it, ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal})
		if err != nil {
			t.Fatal(err)
		}
		return aws.ToFloat64(out.ConsumedCapacity.CapacityUnits)
	}
	read := func(strong bool) float64 {
		out, err := db.GetItem(t.Context(), &awsdynamodb.GetItemInput{
			TableName: &table, Key: key("many-0000"), ConsistentRead: &strong, ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
		})
		if err != nil {
			t.Fatal(err)
		}
		return aws.ToFloat64(out.ConsumedCapacity.CapacityUnits)
	}
	list := func() (units float64) {
		pages := awsdynamodb.NewQueryPaginator(db, &awsdynamodb.QueryInput{
			TableName: &table, ConsistentRead: aws.Bool(true), ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
			KeyConditionExpression:    aws.String("pk = :pk"),
			ExpressionAttributeValues: map[string]types.AttributeValue{":pk": key("")["pk"]},
		})
		for pages.HasMorePages() {
			out, err := pages.NextPage(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			units += aws.ToFloat64(out.ConsumedCapacity.CapacityUnits)
		}
		return units
	}
	calls := map[string]float64{"WriteCAS, creation without an owner": put("many-0000", 500)}
	calls["WriteCAS, same owner or none"] = put("many-0000", 500)
	var g errgroup.Group
	g.SetLimit(16)
	for i := 1; i < 1000; i++ {
		it := key(fmt.Sprintf("many-%04d", i))
		it["d"] = &types.AttributeValueMemberB{Value: content(1, 500, false)}
		g.Go(func() error {
			_, err := db.PutItem(t.Context(), &awsdynamodb.PutItemInput{TableName: &table, Item: it})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	calls["List of 1000, strong"] = list()
	calls["Read, strong"], calls["Read, eventual"] = read(true), read(false)
	calls["WriteCAS of 900 bytes, no owner"] = put("larger", 900)
	return calls
}

// A page of large resources ends at its size. A handle that knows the size reads about as many resources as the page has room for, although each
// of many buckets may have the next one.
func TestPagesOfLargeResources(t *testing.T) {
	t.Parallel()
	server := env.DynamoDB(t)
	cfg := aws.Config{
		Region: server.Region, BaseEndpoint: &server.Endpoint,
		Credentials: credentials.NewStaticCredentialsProvider("emulator", "emulator", ""),
	}
	var mu sync.Mutex
	total := 0.0
	b, err := dynamodb.New(t.Context(), awsdynamodb.NewFromConfig(cfg), dynamodbstreams.NewFromConfig(cfg), &dynamodb.Options{
		Table: server.Table, Prefix: server.Prefix(t),
		Spent: func(units float64) { mu.Lock(); defer mu.Unlock(); total += units },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	const count, kibibytes = 200, 12
	dynamodb.SetSizes(b, 8)
	for i := range count {
		fixture.Write(t, b, box(fmt.Sprintf("big-%03d", i), content(i, kibibytes<<10, false)))
	}
	list := func() (units float64) {
		mu.Lock()
		total = 0
		mu.Unlock()
		found := 0
		for opts := (storage.ListOptions{Consistency: storage.StrongConsistency}); ; {
			page, err := b.ListPage(t.Context(), boxType, tenancy, "", opts)
			if err != nil {
				t.Fatal(err)
			}
			found += len(page.Resources)
			if opts.Continue = page.Continue; opts.Continue == "" {
				break
			}
		}
		if found != count {
			t.Errorf("the pages contain %d of %d resources", found, count)
		}
		mu.Lock()
		defer mu.Unlock()
		return total / (count * kibibytes / 4)
	}
	first, second := list(), list()
	t.Logf("units for each 4 KiB: %.1f in the first listing, %.1f in the second", first, second)
	if second > 2.5 {
		t.Errorf("a listing reads each resource %.1f times", second)
	}
}
