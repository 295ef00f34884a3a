//go:build integration

package migrate

import (
	"crypto/rand"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/faultproxy"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestDisconnectedTarget disconnects the target while it is being filled. The migration fails with ErrInconsistent. When the target is
// reachable again, the same call continues.
func TestDisconnectedTarget(t *testing.T) {
	t.Parallel()
	server := env.Postgres(t)
	proxy := faultproxy.New(t, server.Addr)
	schema := server.Schema(t)
	from := fixture.Open(t, "mem://")
	to := fixture.Open(t, server.At(t, proxy.Addr()).StoreURLIn(t, schema, "timeout=10s"))
	all := zoo(400)
	fill(t, from, all)
	reached := false
	o := quick(Options{Live: true, CutoverLag: time.Hour, PageSize: 20, Batch: 10, Parallel: 2, Rate: 100, Timeout: 6 * time.Second})
	o.Progress = func(p Progress) {
		if p.Work.Creations >= 20 && !reached {
			reached = true
			proxy.Refuse()
			proxy.Cut()
		}
	}
	_, err := Run(limited(t), from, to, o)
	if !errors.Is(err, storage.ErrInconsistent) {
		t.Fatalf("got %v, expected ErrInconsistent", err)
	}
	if !reached {
		t.Fatal("the target was not disconnected")
	}
	proxy.Resume()
	o.Rate, o.Progress, o.Timeout = 0, nil, time.Minute
	r, err := Run(limited(t), from, to, o)
	if err != nil {
		t.Fatal(err)
	}
	if !r.IsResumed || r.Phase != Complete || r.Work.Creations >= int64(len(all)) {
		t.Errorf("resumed %v, phase %s, work %+v, expected to resume, complete, and create less than all %d resources", r.IsResumed, r.Phase, r.Work, len(all))
	}
	wantEqual(t, from, to)
}

// TestShortOutages repeatedly cuts the connections to the target, which the migration tolerates.
func TestShortOutages(t *testing.T) {
	t.Parallel()
	server := env.Postgres(t)
	proxy := faultproxy.New(t, server.Addr)
	schema := server.Schema(t)
	from := fixture.Open(t, "mem://")
	to := fixture.Open(t, server.At(t, proxy.Addr()).StoreURLIn(t, schema))
	fill(t, from, zoo(300))
	load := startWriters(t, 4, func() storage.Backend { return from })
	cuts := 0
	o := quick(Options{Live: true, PageSize: 20, Batch: 10, Rate: 300})
	cutover := make(chan struct{}, 1)
	o.Cutover = cutover
	o.Progress = func(p Progress) {
		switch cuts++; {
		case cuts < 5:
			proxy.Cut()
		case p.Phase == Following:
			select {
			case cutover <- struct{}{}:
			default:
			}
		}
	}
	if _, err := Run(limited(t), from, to, o); err != nil {
		t.Fatal(err)
	}
	load.check(t, to)
	wantEqual(t, from, to)
}

// TestKilledPostgresToEtcd is TestKilled between two servers.
func TestKilledPostgresToEtcd(t *testing.T) {
	t.Parallel()
	killed(t, env.Postgres(t).StoreURL(t), env.Etcd(t).StoreURL(t), 16)
}

// TestLostAnswers fills a target whose commits lose their answers, while another program creates some of the same resources. Each
// is created once. If the target is closed for other writers, the other program is refused while the target is filled.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	for name, guarded := range map[string]bool{"closed target": true, "open target": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testLostAnswers(t, guarded)
		})
	}
}

func testLostAnswers(t *testing.T, guarded bool) {
	server := env.Postgres(t)
	proxy := faultproxy.New(t, server.Addr)
	schema := server.Schema(t)
	from := fixture.Open(t, "mem://"+rand.Text())
	to, other := fixture.Open(t, server.At(t, proxy.Addr()).StoreURLIn(t, schema)), fixture.Open(t, server.StoreURLIn(t, schema))
	all := zoo(600)
	fill(t, from, all)
	seen := observe(t, other)
	var traps []*faultproxy.Trap
	created, refused := 0, 0 // by the other program
	var group sync.WaitGroup
	group.Go(func() {
		// The other program starts when both sides have been listed, so its resources are unexpected.
		select {
		case <-seen.moved:
		case <-limited(t).Done():
		}
		for range 8 {
			traps = append(traps, proxy.CutAnswer([]byte("commit\x00")))
		}
		for i := len(all) - 1; i >= 0; i -= 20 {
			switch _, err := other.WriteCAS(limited(t), all[i]); {
			case err == nil:
				created++
			case errors.Is(err, storage.ErrFenced):
				refused++
			case !errors.Is(err, storage.ErrCASFailure):
				t.Error(err)
			}
		}
	})
	target := &tapped{Backend: to, tap: newTap(), role: "to", plain: !guarded}
	r, err := Run(limited(t), from, target, quick(Options{Into: Overwrite, Batch: 20, Rate: 150}))
	group.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if (created > 0) == guarded || (refused > 0) != guarded {
		t.Errorf("the other program created %d resources and was refused %d times", created, refused)
	}
	lost := 0
	for _, trap := range traps {
		if !trap.Disarm() {
			lost++
		}
	}
	if lost == 0 {
		t.Error("no answer was lost")
	}
	if r.Work.Replacements != 0 || r.Work.Deletions != 0 {
		t.Errorf("the migration replaced %d and deleted %d resources, expected none", r.Work.Replacements, r.Work.Deletions)
	}
	wantEqual(t, from, to)
	want := make(trail)
	stored, err := other.List(limited(t), storage.StrongConsistency, everything, anyTenancy(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, res := range stored {
		want[key.Of(res.Id)] = []string{res.Version}
	}
	seen.wantTrail(t, want)
}
