package expiry_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/expiry"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// unwatchable is a backend without watches. It records when they are opened. The eleventh fails after two minutes.
type unwatchable struct {
	storage.Backend
	opened []time.Time
}

func (u *unwatchable) WatchList(context.Context, storage.UnversionedType, *resourcepb.Tenancy, string) (storage.Watch, error) {
	if u.opened = append(u.opened, time.Now()); len(u.opened) == 11 {
		time.Sleep(2 * time.Minute)
	}
	return nil, errors.New("no watches")
}

// An Expirer opens its watch again and again, with pauses that double up to a minute and begin anew after a watch that lasted.
func TestPausesBetweenWatches(t *testing.T) {
	inBubble(t, func(b *bubble) {
		u := &unwatchable{Backend: b.Backend}
		_, stop := b.start(u, nil)
		time.Sleep(time.Hour)
		stop()
		var pauses []time.Duration
		for i := range 12 {
			pauses = append(pauses, u.opened[i+1].Sub(u.opened[i]))
		}
		const first = time.Second / 4
		want := []time.Duration{first, 2 * first, 4 * first, 8 * first, 16 * first, 32 * first, 64 * first, 128 * first, time.Minute, time.Minute, 2*time.Minute + first, 2 * first}
		if !slices.Equal(pauses, want) {
			t.Errorf("the pauses are %v, expected %v", pauses, want)
		}
	})
}

// The random delay of a deletion is at most a tenth of the time to live.
func TestDelayOfShortTTL(t *testing.T) {
	inBubble(t, func(b *bubble) {
		e, stop := b.start(b.Backend, nil)
		defer stop()
		for i := range 20 {
			b.write(fixture.Resource(fmt.Sprint(i), ""), time.Second)
		}
		b.expect(time.Second+time.Second/10+tick, "0", false)
		if s := e.Stats(); s.Deleted != 20 {
			b.Errorf("%+v, expected 20 deletions", s)
		}
	})
}

// Each time to live causes one attempt to delete: none remains from earlier versions, and a resource that was created again during the deletion has its
// own.
func TestOneAttemptPerTTL(t *testing.T) {
	inBubble(t, func(b *bubble) {
		var attempts atomic.Int64
		e, stop := b.start(b.Backend, &expiry.Options{Delete: func(ctx context.Context, id *resourcepb.ID, version string) error {
			err := b.DeleteCAS(ctx, id, version)
			if attempts.Add(1) == 1 {
				b.write(fixture.Resource("a", ""), ttl)
				time.Sleep(tick) // the watch returns both changes
			}
			return err
		}})
		defer stop()
		res := b.write(fixture.Resource("a", ""), ttl)
		for range 3 {
			time.Sleep(ttl / 2)
			res = b.write(res, ttl)
		}
		b.expect(ttl+spread+2*tick, "a", true)
		if n := attempts.Load(); n != 1 || e.Stats().Pending != 1 {
			b.Errorf("%d attempts, %+v, expected one attempt and one pending resource", n, e.Stats())
		}
		b.expect(ttl+spread, "a", false)
		if n := attempts.Load(); n != 2 || e.Stats() != (expiry.Stats{Deleted: 2}) {
			b.Errorf("%d attempts, %+v, expected two", n, e.Stats())
		}
	})
}

// The log of the program has a warning for failed deletions, but not for each of them.
func TestFailuresAreLogged(t *testing.T) {
	inBubble(t, func(b *bubble) {
		var log bytes.Buffer
		e := expiry.New(b.Backend, &expiry.Options{
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Delete: func(context.Context, *resourcepb.ID, string) error { return storage.ErrInconsistent },
		})
		ctx, cancel := context.WithCancel(b.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		for i := range 10 {
			b.write(fixture.Resource(fmt.Sprint(i), ""), time.Second)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		cancel()
		<-ended
		if n := strings.Count(log.String(), "level=WARN"); n != 1 || e.Stats().Failures < 10 {
			t.Errorf("%d warnings for %+v, expected one:\n%s", n, e.Stats(), log.String())
		}
	})
}
