package dynamodb_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/dynamodb"
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
	db, streams := s.Clients(t, func(o *awsdynamodb.Options) { puts.Option(o); transactions.Option(o) })
	opts := &dynamodb.Options{Table: dynamofake.Table, Prefix: "test", Buckets: 1, Poll: 2 * time.Millisecond, IdlePoll: 10 * time.Millisecond, Timeout: fixture.Timeout}
	// The store is closed when it is created. To close an existing one takes 16 minutes.
	cutOff, err := dynamodb.New(migrate.TargetContext(t.Context(), "mem://"), db, streams, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cutOff.Close() })
	from, to := fixture.Open(t, "mem://"), handle(t, s)
	for i := range 100 {
		fixture.Write(t, from, box(fmt.Sprintf("box-%02d", i), nil))
	}
	cut := make(chan struct{})
	over := make(chan error, 1)
	const writers = 8
	go func() {
		_, err := migrate.Run(t.Context(), from, cutOff, &migrate.Options{Live: true, CutoverLag: time.Hour, Batch: 1, Parallel: writers, Rate: 20, Progress: func(p migrate.Progress) {
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
	select {
	case <-cut:
	case err := <-over:
		t.Fatalf("the tool ended before it was cut off: %v", err)
	}
	transactions.WaitFor(writers) // each writer has composed a request
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
	arrived := s.Calls("TransactWriteItems")
	transactions.Thaw()
	for s.Calls("TransactWriteItems") < arrived+writers { // they arrive before the tool notices that it was replaced
		select {
		case err := <-over:
			t.Fatalf("the tool that was cut off ended before its writes: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
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
	all, err := b.List(driver.WithMovedReads(t.Context()), storage.StrongConsistency, boxType, tenancy, "")
	if err != nil {
		t.Fatal(err)
	}
	byName := make(map[string]*resourcepb.Resource)
	for _, res := range all {
		byName[res.GetId().GetName()] = res
	}
	return byName
}

// The answer to the write of a note is lost, and the repetition finds the note written. WriteNote returns the revision of its first
// attempt instead of a conflict with itself.
func TestNoteWithLostAnswer(t *testing.T) {
	t.Parallel()
	for name, op := range map[string]string{"ANote": "PutItem", "AGuard": "TransactWriteItems"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := dynamofake.New(t)
			b := handle(t, s)
			m := gateOf(b)
			revision, err := m.WriteNote(t.Context(), "mover", []byte("first"), "")
			if err != nil {
				t.Fatal(err)
			}
			if op == "TransactWriteItems" {
				guarded := driver.WithGuard(t.Context(), driver.Guard{Note: "mover", Revision: revision})
				if _, err := b.WriteCAS(guarded, box("a", nil)); err != nil { // the note becomes a guard
					t.Fatal(err)
				}
			}
			writes := 0
			s.SetFaults(func(got string) dynamofake.Fault {
				if got != op {
					return dynamofake.Fault{}
				}
				writes++
				return dynamofake.Fault{DropAnswer: writes == 1}
			})
			s.ForgetTokens() // the repetition arrives after DynamoDB has forgotten the token of the transaction
			next, err := m.WriteNote(t.Context(), "mover", []byte("second"), revision)
			if err != nil {
				t.Fatalf("%v after %d attempts", err, writes)
			}
			value, stored, err := m.ReadNote(t.Context(), "mover")
			if err != nil || string(value) != "second" || stored != next {
				t.Errorf("the note is %q at %s, %v; WriteNote returned %s", value, stored, err, next)
			}
			if _, err := m.WriteNote(t.Context(), "mover", []byte("third"), revision); !errors.Is(err, storage.ErrCASFailure) {
				t.Errorf("a write from the old revision: got %v, expected a conflict", err)
			}
		})
	}
}
