package etcd

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"sync/atomic"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/ashlar-dev/storage/driver"
)

// writer applies mutations.
type writer struct {
	*conn
	reader  *reader
	sender  *sender
	id      [8]byte // random; the first half of every token
	counter atomic.Uint64
}

func newWriter(c *conn, r *reader) *writer {
	w := &writer{conn: c, reader: r}
	_, _ = rand.Read(w.id[:]) // never fails
	w.sender = newSender(c, newRevocation(c, w.id[0]))
	return w
}

// nextToken returns a token that no other write has.
func (w *writer) nextToken() (t token) {
	copy(t[:], w.id[:])
	binary.BigEndian.PutUint64(t[8:], w.counter.Add(1))
	return t
}

// Apply implements driver.Driver. A single mutation may share a batch, unless it is Exclusive.
func (w *writer) Apply(ctx context.Context, mutations []driver.Mutation) error {
	ctx, done, err := w.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	r := &request{mutations: mutations, layout: &w.layout, token: w.nextToken(), slot: w.id[0]}
	r.exclusive = len(mutations) > 1 || mutations[0].Verb == driver.Check || mutations[0].Exclusive
	bases, possible := r.givenBases()
	if !possible && !r.exclusive {
		// The version given cannot be stored, so the mutation fails or has nothing to change.
		now, err := w.reader.get(ctx, w.layout.resource(mutations[0].Key))
		if err != nil {
			return err
		}
		_, err = r.decide([]*mvccpb.KeyValue{now.kv})
		return err
	}
	if r.since, err = w.recent(ctx); err != nil {
		return err
	}
	if r.guard, err = guardOf(ctx, r.layout); err != nil {
		return err
	}
	if err := r.prepare(bases); err != nil {
		return err
	}
	if !possible {
		r.changes = nil // the comparison fails, so the request only reads
	}
	rev, err := w.run(ctx, r)
	if err == nil {
		r.finish(rev)
	}
	return err
}

// run sends a request until its outcome is known, and returns the revision of its change, 0 if there was nothing to change.
func (w *writer) run(ctx context.Context, r *request) (rev int64, err error) {
	for attempt := 0; ; attempt++ {
		o, err := w.sender.submit(ctx, r)
		known := err == nil
		var lost *lostAnswer
		switch {
		case known:
		case classify(err) == rejectedForGood:
			return 0, translate(err)
		case ctx.Err() != nil:
			return 0, unavailable(ctx, err)
		case errors.As(err, &lost):
			w.lostAnswers.Add(ctx, 1)
			w.Logger().InfoContext(ctx, "the answer to a write was lost", "error", err)
			if o, known, err = w.resolve(ctx, r, lost); err != nil {
				return 0, err
			}
			w.countSettled(ctx, known && o.rev != 0)
			if !known && !lost.inFlight() {
				if lost.single {
					return 0, translate(lost.cause)
				}
				r.exclusive = true // without space, etcd rejects a delete only together with writes
				continue
			}
		case final(err, attempt):
			return 0, translate(err)
		}
		switch {
		case !known:
			w.retries.Add(ctx, 1)
			if !pause(ctx, attempt) {
				return 0, unavailable(ctx, err)
			}
		case o.rev != 0:
			return o.rev, nil
		case o.guardError != nil:
			return 0, o.guardError
		default:
			if resend, err := r.decide(o.values); !resend {
				return 0, err
			}
		}
	}
}

// resolve determines the outcome of a request whose answer was lost. known is false if the request was not applied, never will be, and may
// be sent again.
func (w *writer) resolve(ctx context.Context, r *request, lost *lostAnswer) (o outcome, known bool, err error) {
	if lost.inFlight() {
		if err := w.sender.revocation.advance(ctx, lost.position); err != nil {
			return outcome{}, false, uncertain(err, lost)
		}
	}
	now, err := w.reader.get(ctx, r.receipt.key)
	if err != nil {
		return outcome{}, false, uncertain(err, lost)
	}
	switch {
	case now.kv != nil && r.receipt.token != token{} && tokenOf(now.kv.Value) == r.receipt.token:
		return outcome{rev: now.kv.ModRevision}, true, nil
	case now.kv != nil && now.kv.ModRevision == r.receipt.base:
		return outcome{}, false, nil
	}
	rev, err := w.find(ctx, &r.receipt, max(r.receipt.base, r.since), now.rev)
	switch {
	case err != nil:
		return outcome{}, false, uncertain(err, lost)
	case rev != 0:
		return outcome{rev: rev}, true, nil
	case now.kv == nil && r.receipt.base == 0, len(r.mutations) > 1, !bytes.Equal(r.receipt.key, r.key(0)):
		return outcome{}, false, nil
	}
	return outcome{values: []*mvccpb.KeyValue{now.kv}}, true, nil
}

// find searches the history of a receipt's key between two revisions, and returns the revision that applied the request, or 0. If
// the first event since the request was sent is a deletion by another caller, a delete may count it as its own: nothing was stored
// after it, so the result is the same.
func (w *writer) find(ctx context.Context, r *receipt, after, until int64) (found int64, err error) {
	first := true
	err = scan(ctx, w.conn, r.key, after+1, until, func(_ int64, events []*mvccpb.Event) bool {
		for _, ev := range events {
			if r.token == (token{}) && first && ev.Type == mvccpb.DELETE || r.token != (token{}) && ev.Type == mvccpb.PUT && tokenOf(ev.Kv.Value) == r.token {
				found = ev.Kv.ModRevision
			}
			first = false
		}
		return found == 0
	})
	return found, err
}
