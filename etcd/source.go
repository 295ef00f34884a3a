package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
)

type event = driver.Event[position]

// source is the feed's source: one watch of etcd over all resources of the store.
//
//	  ┌──────────► check: same store, quorum, revision not behind us
//	  │              │
//	pause            ▼
//	  ▲            open the watch after the last whole revision
//	  │              │
//	  │              ▼
//	  └── broken ── publish revision by revision; ask for progress when it is quiet, or when a bookmark waits for it
//
// Compacted or missing history ends the run, and so does an outage that lasts too long.
type source struct {
	b      *handle
	wanted wanted
}

var (
	_ driver.Source[position] = (*source)(nil)
	_ driver.Prover[position] = (*source)(nil)
)

// errLost ends a run: going on would leave changes out.
type errLost struct{ cause error }

func (e errLost) Error() string { return "history is lost: " + e.cause.Error() }
func (e errLost) Unwrap() error { return e.cause }

// The feed asks for progress when it has heard nothing for a while, and begins anew when it then still hears nothing.
const (
	quiet    = 5 * time.Second
	tooQuiet = 3 // times
)

// Run implements driver.Source.
func (s *source) Run(ctx context.Context, ready func(position), publish func([]*event, position)) error {
	f := &follower{source: s, ready: ready, publish: publish, heard: time.Now()}
	for attempt := 0; ; attempt++ {
		before := f.heard
		err := f.follow(ctx)
		var lost errLost
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &lost), errors.Is(err, storage.ErrCompacted) && f.at != 0:
			return err
		case time.Since(f.heard) > s.b.opts.Outage:
			return fmt.Errorf("etcd stayed away for %v: %w", s.b.opts.Outage, err)
		}
		if f.heard.After(before) {
			attempt = 0
		}
		if !pause(ctx, attempt) {
			return ctx.Err()
		}
	}
}

// follower is one run of the source.
type follower struct {
	source  *source
	ready   func(position)
	publish func([]*event, position)
	at      int64     // the last whole revision that was published; 0 before the first watch
	heard   time.Time // when the cluster was last known to be there
}

// follow opens a watch after what was published last, and publishes until it breaks.
func (f *follower) follow(ctx context.Context) error {
	b := f.source.b
	newest, err := f.identify(ctx)
	if err != nil {
		return err
	}
	from := f.at
	if from == 0 {
		from = newest
	}
	resources := b.layout.resources
	stream, err := b.openStream(ctx, resources, key.PrefixEnd(resources), from+1)
	if err != nil {
		return err
	}
	defer stream.close()
	if err := f.kept(ctx, from); err != nil {
		return err
	}
	if f.at == 0 {
		f.at = from
		f.ready(endOf(from))
	}
	f.heard = time.Now()
	return f.receive(ctx, stream, from)
}

// identify makes sure that the store is still the one that was opened and has not gone back in time, and returns its revision.
func (f *follower) identify(ctx context.Context) (int64, error) {
	b := f.source.b
	ctx, cancel := context.WithTimeout(ctx, min(attemptTimeout, b.opts.Outage))
	defer cancel()
	newest := f.at
	if newest != 0 {
		newest = max(newest, b.seen.Load()) // a watch may have begun later than what was published last
	}
	resp, err := b.kv.Get(ctx, b.layout.storeKey())
	if err != nil {
		return 0, err
	}
	store, err := storeIn((*pb.RangeResponse)(resp))
	switch {
	case err != nil:
		return 0, errLost{err}
	case store != b.layout.store:
		return 0, errLost{errors.New("another store is under the prefix now")}
	case resp.Header.Revision < newest:
		return 0, errLost{errWentBack}
	}
	b.answered(resp.Header.Revision)
	return resp.Header.Revision, nil
}

var errWentBack = fmt.Errorf("%w: the cluster is at an older revision than before (restored from a backup?)", storage.ErrCompacted)

// kept is the backend's, with its own time limit.
func (f *follower) kept(ctx context.Context, rev int64) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	return translate(f.source.b.kept(ctx, rev))
}

// receive publishes what the watch brings. The first response is published only when what the watch began with is still kept:
// until then a compaction at the very revision where it began would have gone unnoticed.
func (f *follower) receive(ctx context.Context, s *stream, from int64) error {
	interval := max(min(quiet, f.source.b.opts.Outage/4), time.Millisecond) // a ticker refuses 0
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	silent, begun := 0, false
	var again <-chan time.Time // when to ask once more for progress that a bookmark waits for
	for {
		wanted, raised := f.source.wanted.revision()
		if wanted > f.at && again == nil {
			// The server says nothing while it is behind itself, or the watch is.
			if err := s.askProgress(); err != nil {
				return err
			}
			again = time.After(progressPause)
		}
		select {
		case <-raised:
			again = nil
		case <-again:
			again = nil
		case resp, ok := <-s.responses:
			if !ok {
				return s.err
			}
			silent, f.heard = 0, time.Now()
			if !begun {
				if err := f.kept(ctx, from); err != nil {
					return err
				}
				begun = true
			}
			if err := f.take(ctx, resp.Events, resp.Header.Revision); err != nil {
				return err
			}
			ticker.Reset(interval)
		case <-ticker.C:
			if silent++; silent > tooQuiet {
				return errors.New("etcd has fallen silent")
			}
			if err := s.askProgress(); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// take publishes events, revision by revision. Without any, the watch says that it has come to a revision.
func (f *follower) take(ctx context.Context, changes []*mvccpb.Event, progress int64) error {
	if len(changes) == 0 {
		if progress > f.at {
			f.at = progress
			f.publish(nil, endOf(progress))
		}
		return nil
	}
	var err error
	byRevision(changes, func(rev int64, changes []*mvccpb.Event) bool {
		if rev <= f.at {
			err = errLost{fmt.Errorf("etcd sent revision %d after %d", rev, f.at)}
			return false
		}
		if err = f.source.b.addPrevious(ctx, rev, changes); err != nil {
			return false
		}
		var events []*event
		if events, err = f.source.b.layout.events(rev, changes); err != nil {
			err = errLost{err}
			return false
		}
		events[len(events)-1].At = endOf(rev) // the revision is whole, which makes a shorter cursor
		f.at = rev
		f.publish(events, endOf(rev))
		return true
	})
	return err
}

// events turns the changes of one revision into events, in key order, which is the same for every watch of whatever range. Each
// deletion has its previous value (addPrevious).
func (l *layout) events(rev int64, changes []*mvccpb.Event) ([]*event, error) {
	slices.SortFunc(changes, func(a, b *mvccpb.Event) int { return strings.Compare(string(a.Kv.Key), string(b.Kv.Key)) })
	events := make([]*event, len(changes))
	commit := int64(0)
	if len(changes) > 1 {
		commit = rev // nobody can read what was between two changes of a revision
	}
	for i, change := range changes {
		kv := change.Kv
		if change.Type == mvccpb.DELETE {
			kv = change.PrevKv
		}
		k, res, err := l.decode(kv)
		var damaged *storage.DamagedError
		if err != nil && !errors.As(err, &damaged) {
			return nil, fmt.Errorf("%w: %w", storage.ErrCompacted, err) // no waiting mends it, and nobody knows who wants it
		}
		events[i] = &event{
			Key: k, Delete: change.Type == mvccpb.DELETE, Resource: res, Damage: err, Size: len(kv.Value),
			At: position{rev, string(k.Bytes())}, Commit: commit,
			Revision: rev, CreateRevision: kv.CreateRevision, Writes: kv.Version,
		}
	}
	return events, nil
}

// Contains implements driver.Source.
func (s *source) Contains(at position, ev *event) bool {
	if ev.At.rev != at.rev || at.key == endKey {
		return ev.At.rev <= at.rev
	}
	return string(ev.Key.Bytes()) <= at.key
}

// Advance implements driver.Source.
func (s *source) Advance(_ position, ev *event) position { return ev.At }

// Merge implements driver.Source.
func (s *source) Merge(at, end position) position {
	if at.less(end) {
		return end
	}
	return at
}
