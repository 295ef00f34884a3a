package lease_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/freeze"
	"github.com/ashlar-dev/storage/internal/test/faultproxy"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// storm is several processes that compete for one lock while they are frozen, killed and disconnected.
type storm struct {
	t     *testing.T
	names []string
	urls  []string
	env   []string
	procs map[string]*exec.Cmd

	direct    storage.Backend
	w         storage.Watch
	ordered   bool // the watch preserves the commit order across keys
	lock      lockState
	counter   count
	violation string // the last violation of a rule
}

// lockState is the content of a lock's record.
type lockState struct {
	holder, name string // name is the candidate's name
	epoch        int64
}

// newStorm starts a candidate for each URL. It watches the store through direct.
func newStorm(t *testing.T, urls []string, direct storage.Backend, ordered bool, env ...string) *storm {
	t.Helper()
	s := &storm{t: t, urls: urls, env: env, procs: map[string]*exec.Cmd{}, direct: direct, ordered: ordered}
	w, err := direct.WatchList(fixture.Context(t), storage.UnversionedType{Group: "coordination", Kind: storage.Wildcard}, system, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	s.w = w
	t.Cleanup(func() {
		for name := range s.procs {
			s.kill(name)
		}
	})
	for i := range urls {
		s.names = append(s.names, fmt.Sprintf("candidate%d", i))
		s.start(s.names[i])
	}
	return s
}

func (s *storm) start(name string) {
	s.t.Helper()
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	var at int
	if _, err := fmt.Sscanf(name, "candidate%d", &at); err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^$")
	cmd.Env = append(append(os.Environ(), candidateStore+"="+s.urls[at], candidateName+"="+name), s.env...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.procs[name] = cmd
}

func (s *storm) kill(name string) {
	_ = s.procs[name].Process.Kill()
	_ = s.procs[name].Wait() // returns an error, because the process was killed
	delete(s.procs, name)
}

func (s *storm) wake(name string) {
	s.t.Helper()
	if err := freeze.Wake(s.procs[name].Process); err != nil {
		s.t.Fatalf("%s: %v", name, err)
	}
}

// until reads events until a condition holds, and records violations.
func (s *storm) until(what string, holds func() bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), fixture.Timeout)
	defer cancel()
	for !holds() {
		ev, err := s.w.Next(ctx)
		if err != nil {
			s.dump()
			s.t.Fatalf("until %s: %v; lock %+v, counter %+v", what, err, s.lock, s.counter)
		}
		if ev.GetDelete() != nil {
			s.violation = "a record was deleted"
		}
		if res := ev.GetUpsert().GetResource(); res != nil {
			s.observe(res)
		}
	}
}

// dump logs the stored records, independently of the watch, and makes each candidate print its goroutines and exit.
func (s *storm) dump() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer cancel()
	list, err := s.direct.List(ctx, storage.StrongConsistency, storage.UnversionedType{Group: "coordination", Kind: storage.Wildcard}, system, "")
	s.t.Logf("stored: %v, %v", list, err)
	for name, cmd := range s.procs {
		s.t.Logf("%s is process %d", name, cmd.Process.Pid)
		_ = cmd.Process.Signal(syscall.SIGQUIT)
		_ = freeze.Wake(cmd.Process)
		_ = cmd.Wait() // returns an error, because a signal ended the process
	}
}

// observe records a written resource and checks it against the previous state.
func (s *storm) observe(res *resourcepb.Resource) {
	s.t.Helper()
	fields := &structpb.Struct{}
	if err := res.GetData().UnmarshalTo(fields); err != nil {
		s.t.Fatal(err)
	}
	switch kind := res.GetId().GetType().GetKind(); kind {
	case "Lock":
		now := lockState{holder: fields.GetFields()["holder"].GetStringValue(), epoch: int64(fields.GetFields()["epoch"].GetNumberValue())}
		now.name, _, _ = strings.Cut(now.holder, " ")
		resigned := now.holder == "" && now.epoch == s.lock.epoch
		if taken := now.holder != "" && now.epoch == s.lock.epoch+1; !resigned && !taken {
			s.violation = fmt.Sprintf("the lock is %+v after %+v", now, s.lock)
		}
		s.lock = now
	case "Counter":
		now, err := decodeCount(res)
		if err != nil {
			s.t.Fatal(err)
		}
		switch {
		case now.n != s.counter.n+1:
			s.violation = fmt.Sprintf("an update was lost: the counter is %+v after %+v", now, s.counter)
		case now.epoch < s.counter.epoch:
			s.violation = fmt.Sprintf("an older tenure wrote after a newer one: the counter is %+v after %+v", now, s.counter)
		case s.ordered && now.epoch != s.lock.epoch:
			s.violation = fmt.Sprintf("the counter is %+v while the lock is %+v", now, s.lock)
		}
		s.counter = now
	case "Heartbeat":
	default:
		s.t.Fatalf("a %s was written", kind)
	}
}

// awaitHolder waits until a candidate holds the lock and counts. It returns the candidate's name.
func (s *storm) awaitHolder() string {
	s.t.Helper()
	n := s.counter.n
	s.until("the holder counts", func() bool {
		return s.lock.holder != "" && s.counter.n >= n+2 && s.counter.epoch == s.lock.epoch && s.counter.holder == s.lock.name
	})
	return s.lock.name
}

// awaitTakeover waits until a candidate other than name counts.
func (s *storm) awaitTakeover(name string) {
	s.t.Helper()
	s.until(name+" is overtaken", func() bool { return s.lock.name != name && s.counter.holder != name })
}

// stop stops the holder's process outside a transaction: inside one it would hold the lock of a SQLite file.
func (s *storm) stop() (holder string) {
	s.t.Helper()
	for {
		holder = s.awaitHolder()
		if err := freeze.Stop(s.procs[holder].Process); err != nil {
			s.t.Fatalf("%s: %v", holder, err)
		}
		ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Second)
		probe := fixture.Resource("probe", "")
		_, err := s.direct.WriteCAS(ctx, probe)
		cancel()
		if err == nil || errors.Is(err, storage.ErrCASFailure) {
			return holder
		}
		s.wake(holder)
	}
}

// freeze stops the holder until another candidate takes over, and resumes it while it still believes that it holds the lock.
func (s *storm) freeze() {
	s.t.Helper()
	holder := s.stop()
	s.awaitTakeover(holder)
	s.wake(holder)
	n := s.counter.n
	s.until("work goes on", func() bool { return s.counter.n > n+tenureIncrements })
}

// crash kills the holder and restarts it.
func (s *storm) crash() {
	s.t.Helper()
	holder := s.awaitHolder()
	s.kill(holder)
	s.awaitTakeover(holder)
	s.start(holder)
}

// cutOff stalls the holder's connections until another candidate takes over, and then delivers the data that the holder has sent.
func (s *storm) cutOff(links []*faultproxy.Proxy) {
	s.t.Helper()
	holder := s.awaitHolder()
	var at int
	if _, err := fmt.Sscanf(holder, "candidate%d", &at); err != nil {
		s.t.Fatal(err)
	}
	links[at].Stall()
	s.awaitTakeover(holder)
	links[at].Resume()
	s.awaitHolder()
	links[at].Cut()
}

func (s *storm) check() {
	s.t.Helper()
	if s.violation != "" {
		s.t.Error(s.violation)
	}
}

const rounds = 2

// runStorm checks the rules of locks under faults of the processes: epochs only grow, each tenure has one, and no write with the fence of an
// older tenure follows the start of a later one.
func runStorm(t *testing.T, urls []string, direct string, ordered bool, links []*faultproxy.Proxy) {
	t.Helper()
	s := newStorm(t, urls, fixture.Open(t, direct), ordered)
	for range rounds {
		s.freeze()
		s.crash()
		if links != nil {
			s.cutOff(links)
		}
		s.check()
	}
	s.awaitHolder()
	s.check()
	if s.lock.epoch < 2*rounds {
		t.Errorf("the last epoch is %d, expected more tenures", s.lock.epoch)
	}
}

func TestStormOnSQLite(t *testing.T) {
	t.Parallel()
	url := "sqlite:" + filepath.Join(t.TempDir(), "store.db")
	runStorm(t, []string{url, url, url}, url, true, nil)
}

// The checks detect a frozen holder that continues to write without its fence.
func TestStormDetectsUnfencedHolder(t *testing.T) {
	t.Parallel()
	url := "sqlite:" + filepath.Join(t.TempDir(), "store.db")
	s := newStorm(t, []string{url, url}, fixture.Open(t, url), true, candidateUnfenced+"=1")
	holder := s.stop()
	s.until("another holds the lock", func() bool { return s.lock.name != holder || s.violation != "" })
	s.wake(holder)
	s.until("a violation is detected", func() bool { return s.violation != "" })
}

// Records contain no clock values, so clock differences cannot matter.
func TestRecordsHaveNoTimestamps(t *testing.T) {
	inBubble(t, func(t *testing.T, b storage.Backend) {
		tenure := campaign(t, elector(t, b, "job"))
		<-time.After(time.Minute)
		defer resign(t, tenure)
		list, err := b.List(t.Context(), storage.StrongConsistency, storage.UnversionedType{Group: storage.Wildcard, Kind: storage.Wildcard}, system, "")
		if err != nil || len(list) != 2 {
			t.Fatalf("%d records, %v", len(list), err)
		}
		for _, res := range list {
			fields := &structpb.Struct{}
			if err := res.GetData().UnmarshalTo(fields); err != nil {
				t.Fatal(err)
			}
			for name := range fields.GetFields() {
				if !strings.Contains(" holder epoch ttl ", " "+name+" ") {
					t.Errorf("%s has a field %s", res.GetId().GetType().GetKind(), name)
				}
			}
		}
	})
}
