package etcd

import (
	"context"
	"errors"
	"fmt"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/ashlar-dev/storage"
)

// settle finds out what became of a mutation whose answer was lost. settled is false where it was not applied, will not be,
// and may be sent again.
func (b *handle) settle(ctx context.Context, m *mutation, lost *lostAnswer) (o outcome, settled bool, err error) {
	if !lost.over() {
		if err := b.pass(ctx, lost.fence); err != nil {
			return outcome{}, false, uncertain(err, lost)
		}
	}
	r, err := b.get(ctx, m.etcdKey)
	if err != nil {
		return outcome{}, false, uncertain(err, lost)
	}
	switch {
	case r.kv != nil && m.token != token{} && tokenOf(r.kv.Value) == m.token:
		return outcome{applied: true, rev: r.kv.ModRevision}, true, nil
	case r.kv != nil && r.kv.ModRevision == m.base.rev:
		return outcome{}, false, nil
	}
	rev, err := b.find(ctx, m, max(m.base.rev, m.since), r.rev)
	switch {
	case err != nil:
		return outcome{}, false, uncertain(err, lost)
	case rev != 0:
		return outcome{applied: true, rev: rev}, true, nil
	case r.kv == nil && m.base.rev == 0:
		return outcome{}, false, nil
	}
	return outcome{stored: r.kv}, true, nil
}

// find looks for a mutation in the history of its key, between two revisions, and returns where it was applied, or 0. A write
// is known by its token. A delete is known by being the first thing that happened to its key since it was sent: if it was
// another's, then nothing was stored right after it, and the answer of ours is the same.
func (b *handle) find(ctx context.Context, m *mutation, after, until int64) (found int64, err error) {
	first := true
	err = b.scan(ctx, m.etcdKey, after+1, until, func(_ int64, events []*mvccpb.Event) bool {
		for _, ev := range events {
			if m.token == (token{}) && first && ev.Type == mvccpb.DELETE || m.token != (token{}) && ev.Type == mvccpb.PUT && tokenOf(ev.Kv.Value) == m.token {
				found = ev.Kv.ModRevision
			}
			first = false
		}
		return found == 0
	})
	return found, err
}

// uncertain is the error of a write whose fate could not be found out.
func uncertain(err error, lost *lostAnswer) error {
	if errors.Is(err, storage.ErrInconsistent) {
		return fmt.Errorf("%w (%w)", err, lost)
	}
	return fmt.Errorf("%w: %w (%w)", storage.ErrInconsistent, lost, err)
}
