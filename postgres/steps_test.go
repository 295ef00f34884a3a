//go:build integration

package postgres_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestStepsOfAWriter stops each kind of call between its steps: after its note, after its number, after its row in the log. Others
// write, list eventually and watch meanwhile, and poll often enough to detect changes. Only changes with numbers above the note are held back.
// In the end every watch has returned everything once, in the order of numbers.
func TestStepsOfAWriter(t *testing.T) {
	t.Parallel()
	all := []string{"create", "update", "delete", "commit"}
	for _, at := range []struct {
		name  string
		step  step
		calls []string
		last  bool // the writer has no number yet, so others come first
	}{{"noted", noted, []string{"delete"}, true}, {"drawn", drawn, all, false}, {"logged", logged, all, false}} {
		for _, call := range at.calls {
			t.Run(at.name+"/"+call, func(t *testing.T) {
				t.Parallel()
				stopWriter(t, at.step, call, at.last)
			})
		}
	}
}

func stopWriter(t *testing.T, at step, call string, last bool) {
	server := env.Postgres(t)
	g := newGate(t, server, at)
	b, other := fixture.Open(t, g.url), fixture.Open(t, server.StoreURLIn(t, g.schema))
	name := "reader" + unique()
	reader := fixture.Open(t, server.StoreURLIn(t, g.schema, "poll=20ms", "application_name="+name))
	old := map[string]*resourcepb.Resource{}
	for _, name := range []string{"update", "commit", "delete"} {
		old[name] = fixture.Write(t, b, fixture.Resource(name, "old"))
	}
	before := fixture.WatchAll(t, reader)
	for fixture.Next(t, before).GetEndOfSnapshot() == nil {
		continue
	}

	g.close()
	done := make(chan error, 1)
	go func() { _, err := mutations(b, old)[call](fixture.Context(t)); done <- err }()
	g.await(1)
	if notes := g.notes(); last && notes != 1 {
		t.Errorf("a writer that stopped after its note holds %d notes", notes)
	}
	for i := range 3 {
		fixture.Write(t, other, fixture.Resource(fmt.Sprint("other-", i), "v"))
	}
	for range 2 {
		looked(t, g.conn, name)
	}
	pager, _ := storage.As[storage.Pager](other)
	page, err := pager.ListPage(fixture.Context(t), fixture.AllTypes, fixture.AllTenancies, "", storage.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(page.Resources), len(old)+3; got != want {
		t.Errorf("%d resources in an eventual page, expected %d: everything acknowledged, and nothing of the writer", got, want)
	}
	during := resume(t, reader, page.Cursor)
	for range 2 {
		looked(t, g.conn, name)
	}
	g.open()
	if err := <-done; err != nil {
		t.Fatalf("%s: %v", call, err)
	}
	fixture.Write(t, other, fixture.Resource(marker, ""))
	others := []string{"other-0", "other-1", "other-2"}
	want := append([]string{call}, others...)
	if last {
		want = append(others, call)
	}
	for _, seen := range []struct {
		watchName string
		watch     storage.Watch
		want      []string
	}{
		{"the watch from before", before, want},
		{"the watch of the reader from a list meanwhile", during, []string{call}},
		{"the watch from a list meanwhile", resume(t, other, page.Cursor), []string{call}},
	} {
		if got := names(t, seen.watch); !slices.Equal(got, seen.want) {
			t.Errorf("%s returned %v, expected %v", seen.watchName, got, seen.want)
		}
	}
}

// names reads a watch up to the marker.
func names(t *testing.T, w storage.Watch) (all []string) {
	t.Helper()
	for {
		event := fixture.Next(t, w)
		name := cmp.Or(event.GetUpsert().GetResource(), event.GetDelete().GetResource()).GetId().GetName()
		if name == marker {
			return all
		}
		all = append(all, name)
	}
}
