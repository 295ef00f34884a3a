package dynamodb_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/ashlar-dev/storage"
	_ "github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/migrate"
	"github.com/ashlar-dev/storage/resourcepb"
)

// A tool is cut off in the middle of a copy, the source deletes resources that the tool is about to write, and another tool completes
// the migration. The requests of the first tool arrive afterwards and write nothing.
func TestCutOffTool(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	puts, transactions := dynamofake.NewFreezer("PutItem"), dynamofake.NewFreezer("TransactWriteItems")
	cutOff := handleThrough(t, s, func(o *awsdynamodb.Options) { puts.Option(o); transactions.Option(o) })
	from, to := fixture.Open(t, "mem://"), handle(t, s)
	for i := range 100 {
		fixture.Write(t, from, box(fmt.Sprintf("box-%02d", i), nil))
	}
	cut := make(chan struct{})
	over := make(chan error, 1)
	go func() {
		_, err := migrate.Run(t.Context(), from, cutOff, &migrate.Options{Live: true, CutoverLag: time.Hour, Batch: 1, Parallel: 8, Rate: 50, Progress: func(p migrate.Progress) {
			select {
			case <-cut:
			default:
				if p.Work.Creations > 0 {
					puts.Freeze()
					transactions.Freeze()
					close(cut)
				}
			}
		}})
		over <- err
	}()
	<-cut
	<-time.After(200 * time.Millisecond) // all writers have a request
	written := boxes(t, to)
	for _, res := range boxes(t, from) {
		if _, ok := written[res.GetId().GetName()]; ok {
			continue
		}
		if err := from.DeleteCAS(t.Context(), res.GetId(), res.GetVersion()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := migrate.Run(t.Context(), from, to, &migrate.Options{Live: true, CutoverLag: time.Hour}); err != nil {
		t.Fatal(err)
	}
	transactions.Thaw()
	<-time.After(200 * time.Millisecond) // they arrive before the tool notices that it was replaced
	puts.Thaw()
	if err := <-over; !errors.Is(err, migrate.ErrSuperseded) {
		t.Errorf("the tool that was cut off: got %v, expected ErrSuperseded", err)
	}
	if want, got := len(boxes(t, from)), len(boxes(t, to)); got != want || want == 100 {
		t.Errorf("the target has %d resources, expected %d", got, want)
	}
}

// boxes returns all boxes by name.
func boxes(t *testing.T, b storage.Backend) map[string]*resourcepb.Resource {
	t.Helper()
	all, err := b.List(t.Context(), storage.StrongConsistency, boxType, tenancy, "")
	if err != nil {
		t.Fatal(err)
	}
	byName := make(map[string]*resourcepb.Resource)
	for _, res := range all {
		byName[res.GetId().GetName()] = res
	}
	return byName
}
