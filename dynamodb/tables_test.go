package dynamodb_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/dynamodb"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// Opening a table that cannot contain a store fails with the difference from the expected table.
func TestUnfitTables(t *testing.T) {
	t.Parallel()
	denied := func(denied string) func(*dynamofake.Server) {
		return func(s *dynamofake.Server) {
			s.SetFaults(func(op string) dynamofake.Fault {
				if op == denied {
					return dynamofake.Fault{Code: "AccessDeniedException"}
				}
				return dynamofake.Fault{}
			})
		}
	}
	for name, c := range map[string]struct {
		make   func(s *dynamofake.Server)
		change func(o *dynamodb.Options)
		want   []string
	}{
		"KeyNames": {
			make: func(s *dynamofake.Server) { s.SetSchema("id", "sk", "B", "NEW_AND_OLD_IMAGES") },
			want: []string{"id (HASH, B)", "expected pk (HASH, B) sk (RANGE, B)"},
		},
		"KeyTypes": {
			make: func(s *dynamofake.Server) { s.SetSchema("pk", "sk", "S", "NEW_AND_OLD_IMAGES") },
			want: []string{"pk (HASH, S)", "expected pk (HASH, B)"},
		},
		"StreamView": {
			make: func(s *dynamofake.Server) { s.SetSchema("pk", "sk", "B", "KEYS_ONLY") },
			want: []string{"KEYS_ONLY", "expected NEW_AND_OLD_IMAGES"},
		},
		"NoStream": {
			make: func(s *dynamofake.Server) { s.Disable() },
			want: []string{"stream is disabled", "expected a stream with NEW_AND_OLD_IMAGES"},
		},
		"NoTable": {
			make:   func(*dynamofake.Server) {},
			change: func(o *dynamodb.Options) { o.Table, o.NoCreate = "elsewhere", true },
			want:   []string{storage.ErrNoStore.Error(), "no table elsewhere", "region eu-north-1", "create=off"},
		},
		"NoStore": {
			make:   func(*dynamofake.Server) {},
			change: func(o *dynamodb.Options) { o.NoCreate = true },
			want:   []string{storage.ErrNoStore.Error(), "none with the prefix", "create=off"},
		},
		"NotAllowedToDescribe": {make: denied("DescribeTable"), want: []string{"AccessDeniedException", "region eu-north-1"}},
		"NotAllowedToRead":     {make: denied("GetItem"), want: []string{"AccessDeniedException", "GetItem"}},
		"NotAllowedToCreate": {
			make: denied("CreateTable"), change: func(o *dynamodb.Options) { o.Table = "elsewhere" },
			want: []string{"AccessDeniedException", "CreateTable"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := dynamofake.New(t)
			c.make(s)
			change := c.change
			if change == nil {
				change = func(*dynamodb.Options) {}
			}
			_, err := newHandle(t, s, change)
			if err == nil {
				t.Fatal("opened")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in the error: %v", want, err)
				}
			}
			if strings.Contains(err.Error(), "RequestID") {
				t.Errorf("the error contains internal details: %v", err)
			}
		})
	}
}

// A backend that may write but not read the stream reports that when a watch is opened, and serves all other calls.
func TestNotAllowedToWatch(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b := handle(t, s)
	s.SetFaults(func(op string) dynamofake.Fault {
		if op == "DescribeStream" {
			return dynamofake.Fault{Code: "AccessDeniedException"}
		}
		return dynamofake.Fault{}
	})
	if _, err := b.WatchList(t.Context(), boxType, tenancy, ""); err == nil || !strings.Contains(err.Error(), "AccessDeniedException") {
		t.Errorf("watching without permission: %v", err)
	}
	stored := fixture.Write(t, b, box("a", nil))
	if _, err := b.Read(t.Context(), storage.StrongConsistency, stored.GetId()); err != nil {
		t.Error(err)
	}
}

// A refusal by the service is returned as an error and is not retried.
func TestRefusedWrite(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b := handle(t, s)
	fixture.Write(t, b, boxIn(0, "a-"))
	s.SetFaults(func(string) dynamofake.Fault { return dynamofake.Fault{Code: "AccessDeniedException"} })
	before := s.Calls("PutItem")
	_, err := b.WriteCAS(t.Context(), boxIn(0, "b-"))
	if err == nil || errors.Is(err, storage.ErrInconsistent) || !strings.Contains(err.Error(), "AccessDeniedException") {
		t.Errorf("got %v", err)
	}
	if n := s.Calls("PutItem") - before; n != 1 {
		t.Errorf("%d requests", n)
	}
}

// A write that changes no owner is one request, without a read before it, unless it is the first one in its bucket. The same holds for the
// deletion of a resource without an owner.
func TestRequestsOfAWrite(t *testing.T) {
	t.Parallel()
	countRequests(t, func() []string { return requestsOfAWrite(t) })
}

// requestsOfAWrite returns the differences from the expected numbers of requests.
func requestsOfAWrite(t *testing.T) (differences []string) {
	s := dynamofake.New(t)
	b := handle(t, s)
	owner := fixture.Write(t, b, boxIn(0, "owner-"))
	owned := boxIn(0, "owned-")
	owned.Owner = owner.GetId()
	owned = fixture.Write(t, b, owned)
	count := func(what string, want int, do func()) {
		t.Helper()
		all := func() int {
			n := 0
			for _, op := range []string{"PutItem", "GetItem", "UpdateItem", "DeleteItem", "BatchGetItem", "Query", "TransactGetItems", "TransactWriteItems"} {
				n += s.Calls(op)
			}
			return n
		}
		before := all()
		do()
		if n := all() - before; n != want {
			differences = append(differences, fmt.Sprintf("%s: %d requests, expected %d", what, n, want))
		}
	}
	fresh := boxIn(0, "fresh-")
	count("a creation", 1, func() { fresh = fixture.Write(t, b, fresh) })
	count("a write", 1, func() { fresh = fixture.Write(t, b, fresh) })
	count("a write with the same owner", 1, func() { owned = fixture.Write(t, b, owned) })
	count("a write with another owner", 1, func() {
		owned.Owner = fresh.GetId()
		owned = fixture.Write(t, b, owned)
	})
	count("a deletion with an owner", 1, func() { fixture.Remove(t, b, owned) })
	count("a deletion", 1, func() { fixture.Remove(t, b, owner) })
	count("a creation over a tombstone", 2, func() { fixture.Write(t, b, boxIn(0, "owner-")) })
	return differences
}

// Options.Spent receives every request that consumes units, including requests that enter a type, retire parts, close the store, or
// write ticks. A request whose answer comes too late is not accounted for, so on a slow machine one attempt proves nothing.
func TestEveryRequestIsAccounted(t *testing.T) {
	t.Parallel()
	var spent, granted int64
	for range 3 {
		if spent, granted = spentAndGranted(t); spent == granted {
			return
		}
	}
	t.Errorf("%d requests of one unit were accounted for, and %d were granted", spent, granted)
}

// spentAndGranted returns the units that Options.Spent received for requests of all kinds, and the number of these requests, of one unit each. It
// waits for the last answers while the numbers differ.
func spentAndGranted(t *testing.T) (units, granted int64) {
	s := dynamofake.New(t)
	var spent atomic.Int64
	b := handle(t, s, func(o *dynamodb.Options) { o.Spent = func(units float64) { spent.Add(int64(units)) } })
	afterSnapshot(t, watch(t, b))
	var ops []storage.Op
	for i := range 4 {
		res := fixture.Write(t, b, box(fmt.Sprint("large-", i), content(i, 900<<10, false)))
		ops = append(ops, storage.Op{Delete: res.GetId(), Version: res.GetVersion()})
	}
	if _, err := b.Commit(t.Context(), ops); err != nil { // retires more parts than fit into the transaction
		t.Fatal(err)
	}
	if err := advanceUntil(t, s, startFence(t, b, "mem://there")); err != nil {
		t.Fatal(err)
	}
	if err := gateOf(b).SetFence(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if s.Calls("UpdateItem") == 0 {
		t.Error("no parts were retired separately")
	}
	// The stream's reader continues, so its last request may not be answered yet. A request that was signed before the clock was advanced is
	// refused, and consumes nothing.
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for range 500 {
		granted = 0
		for _, op := range []string{"PutItem", "GetItem", "UpdateItem", "DeleteItem", "BatchGetItem", "Query", "TransactGetItems", "TransactWriteItems"} {
			granted += int64(s.Grants(op))
		}
		if units = spent.Load(); units == granted {
			break
		}
		<-ticker.C
	}
	return units, granted
}

// AWS answers for a while after the creation of a table that its continuous backups are unavailable. Opening waits until then.
func TestBackupsOfANewTable(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	s.SetTimeToLive(false)
	refused := 0
	s.SetFaults(func(op string) dynamofake.Fault {
		if op == "UpdateContinuousBackups" && refused < 3 {
			refused++
			return dynamofake.Fault{Code: "ContinuousBackupsUnavailableException"}
		}
		return dynamofake.Fault{}
	})
	handle(t, s, func(o *dynamodb.Options) { o.PointInTimeRecovery = true })
	if n := s.Calls("UpdateContinuousBackups"); n != 4 || !s.TimeToLive() {
		t.Errorf("%d requests, time-to-live %v", n, s.TimeToLive())
	}
}

// Opening refuses a table that loses or changes data by itself.
func TestUnsuitableTable(t *testing.T) {
	t.Parallel()
	for says, spoil := range map[string]func(s *dynamofake.Server){
		"replicas in eu-west-1, us-east-1":  func(s *dynamofake.Server) { s.SetReplicas("eu-west-1", "us-east-1") },
		`its time-to-live attribute is "d"`: func(s *dynamofake.Server) { s.SetTimeToLiveAttribute("d") },
	} {
		s := dynamofake.New(t)
		spoil(s)
		if _, err := newHandle(t, s); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, expected an error with %q", err, says)
		}
	}
}

// A table is deleted and restored from a backup under its own name while a program uses it. Resources of a type that the program had
// stored before, but that the backup does not contain, are in lists with wildcards.
func TestTypesAfterRestore(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b := handle(t, s)
	early := box("early", nil)
	early.Id.Type.Kind = "Early"
	fixture.Write(t, b, early)
	backup := s.Backup()
	fixture.Write(t, b, box("lost", nil))
	s.Restore(backup)
	s.Advance(time.Minute) // a table is not restored faster
	if _, err := b.Read(t.Context(), storage.StrongConsistency, early.GetId()); err != nil {
		t.Fatal(err)
	}
	fixture.Write(t, b, box("a", nil))
	second := box("second", nil)
	second.Id.Type.Kind = "Second"
	if _, err := b.Commit(t.Context(), []storage.Op{{Write: second}}); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]storage.Backend{"the same handle": b, "another handle": handle(t, s)} {
		all, err := b.List(t.Context(), storage.StrongConsistency, fixture.AllTypes, fixture.AllTenancies, "")
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, res := range all {
			names = append(names, res.GetId().GetName())
		}
		if want := []string{"a", "early", "second"}; !slices.Equal(names, want) {
			t.Errorf("%s lists %q, expected %q", name, names, want)
		}
	}
}

// A table is deleted and created again, with another store. A program with a handle of the first one cannot write to the second, nor read it
// strongly.
func TestAnotherStoreUnderTheName(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	empty := s.Backup()
	b := handle(t, s)
	res := fixture.Write(t, b, box("a", nil))
	s.Restore(empty)
	handle(t, s)
	s.Advance(time.Minute)
	_, read := b.Read(t.Context(), storage.StrongConsistency, res.GetId())
	_, write := b.WriteCAS(t.Context(), box("b", nil))
	for call, err := range map[string]error{"reading": read, "writing": write} {
		if err == nil || !strings.Contains(err.Error(), "another store") {
			t.Errorf("%s: got %v, expected an error about another store", call, err)
		}
	}
}
