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

// storm is several processes that want one lock, while they are frozen, killed and cut off.
type storm struct {
	t     *testing.T
	names []string
	urls  []string
	env   []string
	procs map[string]*exec.Cmd

	around  storage.Backend
	w       storage.Watch
	ordered bool // the watch has the order of commits of all keys
	lock    lockState
	counter count
	wrong   string // what is not allowed to happen and was seen
}

// lockState is what a lock's record says.
type lockState struct {
	holder, name string // name is that of the candidate
	epoch        int64
}

// newStorm starts a candidate for each URL. It watches the store through the last argument.
func newStorm(t *testing.T, urls []string, around storage.Backend, ordered bool, env ...string) *storm {
	t.Helper()
	s := &storm{t: t, urls: urls, env: env, procs: map[string]*exec.Cmd{}, around: around, ordered: ordered}
	w, err := around.WatchList(fixture.Context(t), storage.UnversionedType{Group: "coordination", Kind: storage.Wildcard}, system, "")
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
	_ = s.procs[name].Wait() // it says that the process was killed
	delete(s.procs, name)
}

func (s *storm) wake(name string) {
	s.t.Helper()
	if err := freeze.Wake(s.procs[name].Process); err != nil {
		s.t.Fatalf("%s: %v", name, err)
	}
}

// until reads events until something holds, and notes in wrong what is not allowed.
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
			s.wrong = "a record was deleted"
		}
		if res := ev.GetUpsert().GetResource(); res != nil {
			s.see(res)
		}
	}
}

// dump tells what is stored, whatever the watch has told, and has each candidate end and print what it was about.
func (s *storm) dump() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer cancel()
	list, err := s.around.List(ctx, storage.StrongConsistency, storage.UnversionedType{Group: "coordination", Kind: storage.Wildcard}, system, "")
	s.t.Logf("stored are %v, %v", list, err)
	for name, cmd := range s.procs {
		s.t.Logf("%s is process %d", name, cmd.Process.Pid)
		_ = cmd.Process.Signal(syscall.SIGQUIT)
		_ = freeze.Wake(cmd.Process)
		_ = cmd.Wait() // it says by which signal the process has ended
	}
}

// see takes in a resource that was written, and holds it against what was written before.
func (s *storm) see(res *resourcepb.Resource) {
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
			s.wrong = fmt.Sprintf("the lock is %+v after %+v", now, s.lock)
		}
		s.lock = now
	case "Counter":
		now, err := counted(res)
		if err != nil {
			s.t.Fatal(err)
		}
		switch {
		case now.n != s.counter.n+1:
			s.wrong = fmt.Sprintf("an update was lost: the counter is %+v after %+v", now, s.counter)
		case now.epoch < s.counter.epoch:
			s.wrong = fmt.Sprintf("an older tenure wrote after a newer one: the counter is %+v after %+v", now, s.counter)
		case s.ordered && now.epoch != s.lock.epoch:
			s.wrong = fmt.Sprintf("the counter is %+v while the lock is %+v", now, s.lock)
		}
		s.counter = now
	case "Heartbeat":
	default:
		s.t.Fatalf("a %s was written", kind)
	}
}

// held waits until somebody holds the lock and counts, and returns the name.
func (s *storm) held() string {
	s.t.Helper()
	n := s.counter.n
	s.until("the holder counts", func() bool {
		return s.lock.holder != "" && s.counter.n >= n+2 && s.counter.epoch == s.lock.epoch && s.counter.holder == s.lock.name
	})
	return s.lock.name
}

// overtaken waits until another than the named candidate counts.
func (s *storm) overtaken(name string) {
	s.t.Helper()
	s.until(name+" is overtaken", func() bool { return s.lock.name != name && s.counter.holder != name })
}

// stop stops the holder's process, outside of a transaction: within one it would keep the lock of a SQLite file.
func (s *storm) stop() (holder string) {
	s.t.Helper()
	for {
		holder = s.held()
		if err := freeze.Stop(s.procs[holder].Process); err != nil {
			s.t.Fatalf("%s: %v", holder, err)
		}
		ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Second)
		probe := fixture.Resource("probe", "")
		_, err := s.around.WriteCAS(ctx, probe)
		cancel()
		if err == nil || errors.Is(err, storage.ErrCASFailure) {
			return holder
		}
		s.wake(holder)
	}
}

// freeze stops the holder for so long that another takes its place, and wakes it while it believes that it holds the lock.
func (s *storm) freeze() {
	s.t.Helper()
	holder := s.stop()
	s.overtaken(holder)
	s.wake(holder)
	n := s.counter.n
	s.until("work goes on", func() bool { return s.counter.n > n+turn })
}

// crash kills the holder and starts it again.
func (s *storm) crash() {
	s.t.Helper()
	holder := s.held()
	s.kill(holder)
	s.overtaken(holder)
	s.start(holder)
}

// cutOff lets the holder's connections stand until another takes its place, and then pass on what it has sent.
func (s *storm) cutOff(links []*faultproxy.Proxy) {
	s.t.Helper()
	holder := s.held()
	var at int
	if _, err := fmt.Sscanf(holder, "candidate%d", &at); err != nil {
		s.t.Fatal(err)
	}
	links[at].Stall()
	s.overtaken(holder)
	links[at].Resume()
	s.held()
	links[at].Cut()
}

func (s *storm) check() {
	s.t.Helper()
	if s.wrong != "" {
		s.t.Error(s.wrong)
	}
}

const rounds = 3

// throughStorm checks the rules of locks, whatever befalls the processes: epochs only grow, one for each tenure, and nothing that goes with
// the fence of an older tenure is written after a newer one began.
func throughStorm(t *testing.T, urls []string, around string, ordered bool, links []*faultproxy.Proxy) {
	t.Helper()
	s := newStorm(t, urls, fixture.Open(t, around), ordered)
	for range rounds {
		s.freeze()
		s.crash()
		if links != nil {
			s.cutOff(links)
		}
		s.check()
	}
	s.held()
	s.check()
	if s.lock.epoch < 2*rounds {
		t.Errorf("%d tenures", s.lock.epoch)
	}
}

func TestStormOnSQLite(t *testing.T) {
	t.Parallel()
	url := "sqlite:" + filepath.Join(t.TempDir(), "store.db")
	throughStorm(t, []string{url, url, url}, url, true, nil)
}

// The checks find a holder that was frozen and writes on without its fence.
func TestStormFindsWhoDoesNotFence(t *testing.T) {
	t.Parallel()
	url := "sqlite:" + filepath.Join(t.TempDir(), "store.db")
	s := newStorm(t, []string{url, url}, fixture.Open(t, url), true, candidateCareless+"=1")
	holder := s.stop()
	s.until("another holds the lock", func() bool { return s.lock.name != holder || s.wrong != "" })
	s.wake(holder)
	s.until("something wrong is seen", func() bool { return s.wrong != "" })
}

// No record has a time in it that a clock was asked for: how far clocks are apart cannot matter.
func TestRecordsHaveNoTimes(t *testing.T) {
	in(t, func(t *testing.T, b storage.Backend) {
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
