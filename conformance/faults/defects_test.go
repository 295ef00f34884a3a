package faults

import (
	"context"
	"errors"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// defects are the defects that the suite must find, with the checks that may find them.
var defects = []struct{ name, by string }{
	{"a lost answer is forgotten", "refused changes do not happen|followers report the previous state"}, // a scan that is done twice counts twice
	{"a cancel in the commit", "refused changes do not happen"},
	{"a visible write counts as durable", "watches|acknowledged|reads show"},
	{"acknowledged before it is durable", "watches|acknowledged|reads show"},
	{"a crash loses acknowledged writes, and watches report it", "acknowledged changes stay"},
	{"an acknowledged write is forgotten", "acknowledged changes stay"},
	{"a delete does nothing", "acknowledged changes stay|strictly serializable"},
	{"a write does not compare", "watches are complete"},
	{"pages by rows", "strictly serializable"},
	{"an empty page is the last", "strictly serializable"},
	{"silence counts as proof", "bookmarks are true"},
	{"a bookmark too early", "bookmarks are true"},
	{"a bookmark is forgotten", "bookmarks come"},
	{"an abandoned write is applied later", "refused changes do not happen|watches are complete"},
	{"a batch is skipped after a reconnect", "watches are complete|cursors are exact"},
	{"a stale member", "strictly serializable"},
	{"a list shows a later change first", "one order for everything strong"},
	{"a resumed watch one too late", "watches are complete|cursors are exact"},
	{"a resumed watch one too early", "watches are complete|cursors are exact"},
	{"a cursor skips the rest of a transaction", "watches are complete|cursors are exact"},
	{"events are swapped", "watches are complete|one order|transactions in watches|cursors are exact"},
	{"an event is returned twice", "watches are complete|cursors are exact"},
	{"an event is missing", "watches are complete|cursors are exact"},
	{"half a transaction", "refused changes do not happen"},
	{"a transaction in two steps", "strictly serializable|transactions|refused|watches are complete"},
	{"a deletion ignores that its resource must be present", "linearizable"},
	{"a late call", "deadlines"},
	{"an early end", "deadlines"},
	{"eventual reads go back", "eventual reads do not go back"},
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
	{"a swap returns the previous revision", "revisions rise"},
	{"an outcome is unknown without a fault", "outcomes are known"},
	{"bytes are damaged", "content"},
	{"a goroutine is left", "nothing is left after Close"},
}

// defectSearchTime bounds the search for a defect. A search takes seconds on a quiet machine, and many times as long on a busy one.
const defectSearchTime = 5 * time.Minute

// TestDefects checks that each defect is found by one of its checks. The seeds are the same in each run.
func TestDefects(t *testing.T) {
	for _, d := range defects {
		t.Run(d.name, func(t *testing.T) {
			o := Options{For: 700 * time.Millisecond, Calm: 100 * time.Millisecond, Timeout: 10 * time.Second}
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
			var others []Violation
			for began := time.Now(); time.Since(began) < defectSearchTime; { // most take luck
				o.Seed++
				s := newServer(d.name)
				report, err := Run(t.Context(), s.harness(d.name != "an outcome is unknown without a fault"), o)
				close(s.leak)
				if d.name == "an outcome is unknown without a fault" && errors.Is(err, storage.ErrInconsistent) || d.name == "an early end" && errors.Is(err, context.DeadlineExceeded) {
					continue // the run's own calls met the defect
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

// TestReference checks that the reference has no violations without a defect.
func TestReference(t *testing.T) {
	Test(t, newServer("").harness(true), Options{Seed: 4711, For: 6 * time.Second, Round: 3 * time.Second})
}

// harness is the server with its faults, on two wires.
func (s *server) harness(faults bool) Harness {
	var disturbed []*wire
	open := func(w *wire) storage.Backend {
		h := &handle{server: s, wire: w}
		h.open.pages = map[string][]*resourcepb.Resource{}
		return h
	}
	h := Harness{
		Around: func(context.Context) (storage.Backend, error) { return open(newWire()), nil },
		Open: func(context.Context) (storage.Backend, error) {
			w := newWire()
			disturbed = append(disturbed, w)
			return open(w), nil
		},
		Exempt: map[Kind]string{},
	}
	one := func(random *rand.Rand) *wire { return disturbed[random.IntN(len(disturbed))] }
	const briefly = 400 * time.Millisecond // longer than a follower waits for an event
	if faults {
		h.Faults = []Fault{
			{Kind: Delay, Touches: "wires", Weight: 4, Hold: briefly, Inject: func(_ context.Context, random *rand.Rand) (func(context.Context) error, error) {
				w := one(random)
				w.stall()
				return func(context.Context) error { w.resume(); return nil }, nil
			}},
			{Kind: Cut, Weight: 3, Inject: func(_ context.Context, random *rand.Rand) (func(context.Context) error, error) {
				one(random).cut(0)
				return nil, nil
			}},
			{Kind: LoseAnswer, Weight: 3, Inject: func(_ context.Context, random *rand.Rand) (func(context.Context) error, error) {
				one(random).cut(10)
				return nil, nil
			}},
			{Kind: KillServer, Weight: 2, Inject: func(context.Context, *rand.Rand) (func(context.Context) error, error) {
				s.crash()
				return nil, nil
			}},
			{Kind: Compact, Inject: func(context.Context, *rand.Rand) (func(context.Context) error, error) {
				s.compact()
				return nil, nil
			}},
		}
	}
	for _, kind := range Kinds() {
		if !h.offers(kind) {
			h.Exempt[kind] = "the reference is not that much of a database"
		}
	}
	return h
}

// TestExemptions rejects harnesses without a fault or an exemption for some kind.
func TestExemptions(t *testing.T) {
	h := newServer("").harness(true)
	delete(h.Exempt, SkewClock)
	h.Exempt[Cut] = "an outcome is unknown without a fault"
	h.Exempt["earthquake"] = "none here"
	_, err := Run(t.Context(), h, Options{})
	for _, want := range []string{`no fault of kind "skew clock"`, `a fault of kind "cut" although`, `"earthquake"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
}

// A backend that cannot be read as it was is refused if the harness does not say why, and one that can if it says why not.
func TestNoHistorian(t *testing.T) {
	h := newServer("").harness(true)
	h.NoHistorian = "none here"
	if _, err := Run(t.Context(), h, Options{}); err == nil || !strings.Contains(err.Error(), "although Harness.NoHistorian says: none here") {
		t.Errorf("got error %v", err)
	}
	around := h.Around
	h.NoHistorian, h.Around = "", func(ctx context.Context) (storage.Backend, error) {
		b, err := around(ctx)
		return struct{ storage.Backend }{b}, err
	}
	if _, err := Run(t.Context(), h, Options{}); err == nil || !strings.Contains(err.Error(), "is no history.Historian") {
		t.Errorf("got error %v", err)
	}
}

// A run that is given up ends, however patient it is.
func TestGivenUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	h := newServer("").harness(true)
	h.Faults[0].Inject = func(context.Context, *rand.Rand) (func(context.Context) error, error) { cancel(); return nil, nil }
	_, err := Run(ctx, h, Options{For: time.Hour, Round: time.Hour, Timeout: time.Hour})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v", err)
	}
}
