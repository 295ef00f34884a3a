package conformance

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/conformance/faults"
)

// faultDefects are the defects that package faults must find, with the checks that may find them.
var faultDefects = []struct{ name, by string }{
	{"a lost answer is forgotten", "refused changes do not happen|followers report the previous state"}, // a scan that is done twice counts twice
	{"a cancel in the commit", "refused changes do not happen"},
	{"a visible write counts as durable", "watches|acknowledged|reads show"},
	{"acknowledged before it is durable", "watches|acknowledged|reads show"},
	{"a crash loses acknowledged writes, and watches report it", "acknowledged changes stay"},
	{"an acknowledged write is forgotten", "acknowledged changes stay"},
	{"a delete does nothing", "acknowledged changes stay|strictly serializable"},
	{"a write does not compare", "watches are complete"},
	{"pages read the present", "strictly serializable"},
	{"an empty page is the last", "strictly serializable"},
	{"silence counts as proof", "bookmarks are true"},
	{"a bookmark comes at once", "bookmarks are true"},
	{"a bookmark is forgotten", "bookmarks come"},
	{"an abandoned write is applied later", "refused changes do not happen|watches are complete"},
	{"a batch is skipped after a reconnect", "watches are complete|cursors are exact"},
	{"strong reads lag", "strictly serializable"},
	{"a list shows a later change first", "one order for everything strong"},
	{"a resumed watch one too late", "watches are complete|cursors are exact"},
	{"a resumed watch one too early", "watches are complete|cursors are exact"},
	{"a cursor one too early", "watches are complete|cursors are exact"},
	{"one cursor for a transaction", "watches are complete|cursors are exact"},
	{"events are swapped", "watches are complete|one order|transactions in watches|cursors are exact"},
	{"an event is returned twice", "watches are complete|cursors are exact"},
	{"an event is missing", "watches are complete|cursors are exact"},
	{"half a transaction", "refused changes do not happen"},
	{"a transaction in two steps", "strictly serializable|transactions|refused|watches are complete"},
	{"a deletion ignores that its resource must be present", "linearizable"},
	{"a late call", "deadlines"},
	{"an early end", "deadlines"},
	{"eventual reads lag", "eventual reads do not go back"},
	{"a compacted cursor continues", "watches are complete|cursors are exact"},
	{"history is deleted too early", "history stays"},
	{"a list after compaction is stale", "watches are complete|strictly serializable"},
	{"a reference is missing", "owner references are true"},
	{"a reference stays when the owner changes", "owner references are true"},
	{"scans show the present", "the past stays"},
	{"the parts of a scan are of different moments", "the past stays|strictly serializable"},
	{"a compacted revision is read as the oldest one", "the past stays"},
	{"a compaction goes back", "compactions stay"},
	{"a revision is used twice", "revisions rise|the past stays"},
	{"a revision is returned before it is final", "revisions rise|the past stays"},
	{"the newest revision is an older one", "revisions rise"},
	{"a follower skips a change", "followers report every change once|followers report the previous"},
	{"a commit is followed in two halves", "commits are followed as a whole"},
	{"a follower reports an older previous state", "followers report the previous state"},
	{"a swap does not compare", "watches are complete|acknowledged changes stay|refused changes do not happen"},
	{"swaps tell the revision before", "revisions rise"},
	{"an outcome is unknown without a fault", "outcomes are known"},
	{"bytes are damaged", "content"},
	{"a goroutine is left", "nothing is left after Close"},
}

// defectSearchTime bounds the search for a defect. A search takes seconds on a quiet machine, and many times as long on a busy one.
const defectSearchTime = 5 * time.Minute

// TestFaultDefects checks that each defect is found by one of its checks. The seeds are the same in each run.
func TestFaultDefects(t *testing.T) {
	for _, d := range faultDefects {
		t.Run(d.name, func(t *testing.T) {
			o := faults.Options{For: 700 * time.Millisecond, Calm: 100 * time.Millisecond, Timeout: 10 * time.Second}
			switch d.name {
			case "a goroutine is left": // nobody else may run in this process
				o.Timeout = time.Second
			case "a late call":
				o.Grace = 300 * time.Millisecond
				fallthrough
			default:
				o.NoLeakCheck = true
				t.Parallel()
			}
			operations := 0
			var others []faults.Violation
			for began := time.Now(); time.Since(began) < defectSearchTime; { // most take luck
				o.Seed++
				s := newStore(d.name)
				report, err := faults.Run(t.Context(), s.faultHarness(d.name != "an outcome is unknown without a fault"), o)
				close(s.leak)
				if d.name == "an outcome is unknown without a fault" && errors.Is(err, storage.ErrInconsistent) || (d.name == "an early end" || o.Timeout == time.Second) && errors.Is(err, context.DeadlineExceeded) {
					continue // the run's own calls met the defect, or were late
				}
				if err != nil {
					t.Fatal(err)
				}
				operations += report.Total()
				for _, v := range report.Violations {
					if regexp.MustCompile(d.by).MatchString(v.Check) {
						t.Logf("found after %d operations by %q, seed %d:\n%s", operations, v.Check, report.Seed, v.Text)
						return
					}
				}
				others = append(others, report.Violations...) // they may see it first, by luck
			}
			t.Errorf("not found in %d operations by %q, but by %v", operations, d.by, others)
		})
	}
}

// TestFaultsOfReference checks that the reference has no violations without a defect.
func TestFaultsOfReference(t *testing.T) {
	faults.Test(t, newStore("").faultHarness(true), faults.Options{Seed: 4711, For: 6 * time.Second, Round: 3 * time.Second})
}

// docs/reliability.md lists the defects, each with a check that may find it.
func TestFaultDefectsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	section := regexp.MustCompile(`(?s)## Defects.*?\n## `).Find(text)
	rows := regexp.MustCompile(`(?m)^\| ([^|]+) \| \*([^|]+)\* \| [\d,]+ \|$`).FindAllSubmatch(section, -1)
	var listed []string
	for _, row := range rows {
		listed = append(listed, string(row[1]))
	}
	for _, d := range faultDefects {
		i := slices.Index(listed, d.name)
		if i < 0 {
			t.Errorf("docs/reliability.md does not list the defect %q", d.name)
		} else if !regexp.MustCompile(d.by).Match(rows[i][2]) {
			t.Errorf("docs/reliability.md says that %q finds %q, which is for %q", rows[i][2], d.name, d.by)
		}
	}
	if len(listed) != len(faultDefects) {
		t.Errorf("docs/reliability.md lists %d defects, there are %d", len(listed), len(faultDefects))
	}
}

// faultHarness is the store with its faults, behind two connections.
func (s *store) faultHarness(disturbed bool) faults.Harness {
	s.hasFaults = true
	var connections []*connection
	open := func() (storage.Backend, error) {
		h := s.open()
		h.conn = &connection{open: alwaysOpen}
		connections = append(connections, h.conn)
		return remote{h}, nil
	}
	h := faults.Harness{
		Around: func(context.Context) (storage.Backend, error) { return remote{s.open()}, nil },
		Open:   func(context.Context) (storage.Backend, error) { return open() },
		Exempt: map[faults.Kind]string{},
	}
	for _, kind := range faults.Kinds() {
		h.Exempt[kind] = "the reference is not that much of a database"
	}
	inject := func(kind faults.Kind, weight int, inject func(c *connection) (heal func())) {
		if !disturbed {
			return
		}
		delete(h.Exempt, kind)
		h.Faults = append(h.Faults, faults.Fault{
			Kind: kind, Weight: weight, Hold: 400 * time.Millisecond, // longer than a follower waits for an event
			Inject: func(_ context.Context, random *rand.Rand) (func(context.Context) error, error) {
				if heal := inject(connections[random.IntN(len(connections))]); heal != nil {
					return func(context.Context) error { heal(); return nil }, nil
				}
				return nil, nil
			},
		})
	}
	inject(faults.Delay, 4, (*connection).stall)
	inject(faults.Cut, 3, func(c *connection) func() { c.cut(0); return nil })
	inject(faults.LoseAnswer, 3, func(c *connection) func() { c.cut(10); return nil })
	inject(faults.KillServer, 2, func(*connection) func() { s.crash(); return nil })
	inject(faults.Compact, 1, func(*connection) func() { s.compact(); return nil })
	return h
}
