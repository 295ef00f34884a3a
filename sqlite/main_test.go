package sqlite

import (
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/conformance/faults"
	"github.com/ashlar-dev/storage/internal/leaks"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestMain runs the tests or, in a process started by a test, the child function of that test.
func TestMain(m *testing.M) {
	if faults.ServeProcess() {
		return
	}
	if run, ok := childMain[os.Getenv("ASHLAR_SQLITE_TEST_CHILD")]; ok {
		run(os.Args[len(os.Args)-1])
		return
	}
	leaks.Main(m)
}

func newPath(t testing.TB) string { return filepath.Join(t.TempDir(), "store.db") }

func open(t testing.TB, path string, o *Options) *Backend {
	t.Helper()
	s, err := New(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// withoutSync makes the writer of a store skip syncs, for tests whose many writes need not survive a power loss.
func withoutSync(t testing.TB, s *Backend) *Backend {
	t.Helper()
	if err := s.handle.writer.conn.db.Exec("PRAGMA synchronous = OFF"); err != nil {
		t.Fatal(err)
	}
	return s
}

func idOf(name string) *resourcepb.ID {
	return &resourcepb.ID{
		Uid: "uid", Name: name,
		Type:    &resourcepb.Type{Group: "group", GroupVersion: "v1", Kind: "Kind"},
		Tenancy: &resourcepb.Tenancy{Partition: "partition", Namespace: "namespace"},
	}
}

func resource(name string, n int64) *resourcepb.Resource {
	payload, err := anypb.New(wrapperspb.Int64(n))
	if err != nil {
		panic(err)
	}
	return &resourcepb.Resource{Id: idOf(name), Data: payload}
}

func number(t testing.TB, res *resourcepb.Resource) int64 {
	t.Helper()
	var n wrapperspb.Int64Value
	if err := res.GetData().UnmarshalTo(&n); err != nil {
		t.Fatal(err)
	}
	return n.Value
}

func wantUpsert(t testing.TB, w storage.Watch, res *resourcepb.Resource) {
	t.Helper()
	got := fixture.Next(t, w).GetUpsert().GetResource()
	if got.GetId().GetName() != res.Id.Name || got.GetVersion() != res.Version {
		t.Fatalf("the watch shows %q at %q, expected %q at %q", got.GetId().GetName(), got.GetVersion(), res.Id.Name, res.Version)
	}
}
