package lease_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/lease"
	"github.com/ashlar-dev/storage/resourcepb"
)

// refusing is a backend whose commits fail as if another writer were always faster.
type refusing struct {
	slow
	commits atomic.Int64
}

func (r *refusing) Commit(context.Context, []storage.Op) ([]*resourcepb.Resource, error) {
	r.commits.Add(1)
	return nil, &storage.OpError{Err: storage.ErrCASFailure}
}

// If conflicts never end and no other holder is visible, a candidate does not retry in a tight loop.
func TestConflictsWithoutProgress(t *testing.T) {
	inBubble(t, func(t *testing.T, b storage.Backend) {
		r := &refusing{slow: slow{Backend: b, Transactor: b.(storage.Transactor)}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := elector(t, r, "job").Campaign(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a campaign that cannot succeed: %v", err)
		}
		if n := r.commits.Load(); n < 60 || n > 1000 {
			t.Errorf("%d tries in a minute, expected 60 to 1000", n)
		}
	})
}

// counting is a backend that counts calls and delays commits.
type counting struct {
	slow
	commits, watches, reads atomic.Int64
}

func (c *counting) Read(ctx context.Context, consistency storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	c.reads.Add(1)
	return c.Backend.Read(ctx, consistency, id)
}

func (c *counting) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	c.commits.Add(1)
	return c.slow.Commit(ctx, ops)
}

func (c *counting) WatchList(
	ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string,
) (storage.Watch, error) {
	c.watches.Add(1)
	return c.Backend.WatchList(ctx, typ, tenancy, prefix)
}

// A candidate follows the heartbeats of a holder by its watch, and reads no records for them.
func TestObservingCandidateDoesNotRead(t *testing.T) {
	inBubble(t, func(t *testing.T, b storage.Backend) {
		first := campaign(t, elector(t, b, "job"))
		c := &counting{slow: slow{Backend: b, Transactor: b.(storage.Transactor)}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := elector(t, c, "job").Campaign(ctx); !errors.Is(err, lease.ErrHeld) {
			t.Errorf("the campaign ended with %v, expected ErrHeld", err)
		}
		if n := c.reads.Load(); n > 10 {
			t.Errorf("the candidate has read %d records in an hour, expected at most 10", n)
		}
		resign(t, first)
	})
}

// Candidates that lost a race delay their next try: not every waiting candidate tries at each resignation, and none opens another watch.
func TestManyCandidates(t *testing.T) {
	inBubble(t, func(t *testing.T, b storage.Backend) {
		const candidates = 100
		first := campaign(t, elector(t, b, "job"))
		c := &counting{slow: slow{b, b.(storage.Transactor), time.Millisecond}}
		next := make(chan *lease.Tenure)
		for range candidates {
			go func() { next <- campaign(t, elector(t, c, "job")) }()
		}
		<-time.After(time.Minute)
		resign(t, first)
		for range candidates {
			resign(t, <-next)
		}
		if maxTries := int64(candidates * candidates / 4); c.commits.Load() > maxTries {
			t.Errorf("%d candidates made %d tries", candidates, c.commits.Load())
		}
		if c.watches.Load() != candidates {
			t.Errorf("%d candidates opened %d watches", candidates, c.watches.Load())
		}
	})
}
