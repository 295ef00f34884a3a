package migrate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// interference is an event at one of a tool's steps.
type interference struct {
	name string
	// strike is called at the step, in the tool's goroutine.
	strike func(c *cross)
	// after is called after strike. The tool must have ended when it returns.
	after func(t *testing.T, c *cross)
	plain bool // also with stores whose fences have no epochs and that have no guards
}

// cross is a migration with an interference.
type cross struct {
	from, to storage.Backend // handles of another process
	tap      *tap
	kill     context.CancelFunc
	over     chan error // the error of the tool
	options  Options
}

// again continues the migration in another process.
func (c *cross) again(t *testing.T) {
	t.Helper()
	if _, err := Run(limited(t), c.from, c.to, quick(c.options)); err != nil {
		t.Errorf("continuing: %v", err)
	}
}

// undo restores the initial contents of the source, if it is open: a suspended tool may have a state in memory that was true only
// in between.
func (c *cross) undo(t *testing.T) {
	t.Helper()
	if fenceOf(t, c.from) != "" {
		return
	}
	write(t, c.from, small("changes", "1"))
	if res := fixture.Stored(t, c.from, small("comes", "").Id); res != nil {
		fixture.Remove(t, c.from, res)
	}
}

// abort aborts the migration if it is not complete.
func (c *cross) abort(t *testing.T) {
	t.Helper()
	if err := Abort(limited(t), c.from, c.to); err != nil && !errors.Is(err, storage.ErrInvalid) {
		t.Errorf("aborting: %v", err)
	}
}

var interferences = []interference{
	{
		name:   "suspended while it is aborted",
		strike: func(c *cross) { c.tap.freeze() },
		after: func(t *testing.T, c *cross) {
			c.abort(t)
			c.tap.thaw()
			<-c.over
			// A repeated abort is allowed.
			c.abort(t)
		},
		plain: true,
	},
	{
		name:   "suspended while it is aborted and started again",
		strike: func(c *cross) { c.tap.freeze() },
		after: func(t *testing.T, c *cross) {
			c.abort(t)
			c.options.Into = Mirror
			c.undo(t)
			c.again(t)
			atRest(t, c)
		},
	},
	{
		name:   "suspended while another process completes it",
		strike: func(c *cross) { c.tap.freeze() },
		after: func(t *testing.T, c *cross) {
			c.undo(t)
			c.again(t)
			atRest(t, c)
		},
	},
	{
		name:   "killed and continued",
		strike: func(c *cross) { c.tap.die(); c.kill() },
		after: func(t *testing.T, c *cross) {
			<-c.over
			c.again(t)
		},
		plain: true,
	},
	{
		name:   "killed, and aborted",
		strike: func(c *cross) { c.tap.die(); c.kill() },
		after: func(t *testing.T, c *cross) {
			<-c.over
			c.abort(t)
			if s, _, err := readState(limited(t), moverOf(t, c.to)); err == nil && s != nil && s.Phase == Opening {
				c.again(t) // too late for an abort
			}
		},
		plain: true,
	},
}

// atRest resumes the tool and checks that it changes nothing any more.
func atRest(t *testing.T, c *cross) {
	t.Helper()
	before, closed := versions(t, c.to), fenceOf(t, c.from)
	c.tap.thaw()
	<-c.over
	if after := versions(t, c.to); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("the suspended tool has changed the target:\n%v\n%v", before, after)
	}
	if now := fenceOf(t, c.from); now != closed {
		t.Errorf("the suspended tool has changed the source's fence from %q to %q", closed, now)
	}
}

// TestInterferenceAtEveryStep interferes with a live migration at each of its steps: before and after every write to the target,
// every note in the journal, every change of the fence. Whatever happens, either the source is open, or the migration is complete and
// the target has the contents of the source. The long form does so with every kind of store.
func TestInterferenceAtEveryStep(t *testing.T) {
	t.Parallel()
	pairs := [][2]storeKind{{local[0], local[0]}}
	if os.Getenv("ASHLAR_MIGRATE_RESOURCES") != "" {
		for i, from := range kinds() {
			pairs = append(pairs, [2]storeKind{from, kinds()[(i+1)%len(kinds())]})
		}
	}
	for _, pair := range pairs {
		for _, into := range []Into{Empty, Merge} {
			for _, plain := range []bool{false, true} {
				for _, i := range interferences {
					t.Run(fmt.Sprintf("%s to %s, %s, into %d, plain %v", pair[0].name, pair[1].name, i.name, into, plain), func(t *testing.T) {
						t.Parallel()
						weak := plain || !strong(t, pair)
						if weak && (into == Merge || !i.plain) {
							return // unsupported, or dependent on clocks
						}
						for at, more := 0, true; more; at++ {
							// Each has its own cleanup, because there are many.
							t.Run(fmt.Sprint("moment ", at), func(t *testing.T) {
								more = false // unless the test ends regularly
								more = interfere(t, pair, into, plain, i, at)
							})
						}
					})
				}
			}
		}
	}
}

// strong reports whether the stores stop a suspended process, and prove their ends.
func strong(t *testing.T, pair [2]storeKind) bool {
	from, to := fixture.Open(t, pair[0].url(t)), fixture.Open(t, pair[1].url(t))
	_, epochs := storage.As[driver.GuardedMover](from)
	_, guards := storage.As[driver.GuardedMover](to)
	watch, err := from.WatchList(limited(t), nothingAtAll, &resourcepb.Tenancy{}, "")
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	_, marks := watch.(storage.Bookmarker)
	return epochs && guards && marks
}

// interfere runs a migration with an interference at a step. It reports whether the migration has that many steps.
func interfere(t *testing.T, pair [2]storeKind, into Into, plain bool, i interference, at int) (struck bool) {
	t.Helper()
	c := &cross{from: fixture.Open(t, pair[0].url(t)), to: fixture.Open(t, pair[1].url(t)), tap: newTap(), over: make(chan error, 1)}
	fill(t, c.from, []*resourcepb.Resource{small("stays", "1"), small("changes", "1"), small("goes", "1")})
	if into == Merge {
		fill(t, c.to, []*resourcepb.Resource{small("own", "1")})
	}
	ctx, kill := context.WithCancel(limited(t))
	defer kill()
	c.kill = kill
	c.options = Options{Into: into, Live: true, CutoverLag: time.Hour, Batch: 1, Parallel: 1}
	hit := make(chan string, 1)
	var meanwhile sync.Once
	c.tap.at = func(step int, before bool, what string) error {
		if what == "to write" {
			// Change the source during the copy.
			meanwhile.Do(func() {
				write(t, c.from, small("changes", "2"))
				fixture.Remove(t, c.from, fixture.Stored(t, c.from, small("goes", "").Id))
				write(t, c.from, small("comes", "1"))
			})
		}
		if moment := 2 * step; moment == at && before || moment+1 == at && !before {
			i.strike(c)
			hit <- fmt.Sprintf("step %d (%s), before %v", step, what, before)
		}
		return nil
	}
	from := &tapped{Backend: c.from, tap: c.tap, role: "from", plain: plain}
	to := &tapped{Backend: c.to, tap: c.tap, role: "to", plain: plain}
	go func() {
		_, err := Run(ctx, from, to, quick(c.options))
		c.over <- err
	}()
	where := "no step"
	select {
	case where = <-hit:
		i.after(t, c)
	case err := <-c.over:
		select {
		case where = <-hit: // at the last step
			c.over <- err
			i.after(t, c)
		default:
			if err != nil {
				t.Errorf("undisturbed: %v", err)
			}
		}
	}
	state, _, err := readState(limited(t), moverOf(t, c.to))
	if err != nil {
		t.Fatal(err)
	}
	if closed := fenceOf(t, c.to); closed != "" {
		t.Errorf("%s: the target is closed: %q", where, closed)
	}
	switch closed := fenceOf(t, c.from); {
	case state != nil && state.Phase == Complete:
		if !strings.HasPrefix(closed, "mem://to (store ") {
			t.Errorf("%s: complete, and the source's fence is %q", where, closed)
		}
		want, got := contents(t, c.from), contents(t, c.to)
		if c.options.Into == Merge {
			want["own"] = "1"
		} else {
			delete(got, "own") // deleted, unless the first run was complete
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: complete, and the target has %v, expected %v", where, got, want)
		}
	case closed != "":
		t.Errorf("%s: the source is closed, and the journal is %+v", where, state)
	}
	return where != "no step"
}
