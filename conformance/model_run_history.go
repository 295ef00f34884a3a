package conformance

import (
	"errors"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

// swapOne swaps at the stored revision or at a different revision.
func (m *modelRun) swapOne() {
	swap, h := m.draw.swap(m.points), m.handle()
	op := storage.Op{Write: swap.Write, Delete: swap.Delete}
	m.note("swap at revision %d: %s", swap.Expect, operationText(op))
	key := keyOf(operationID(op))
	before := m.store.now[key]
	got, err := m.historian(h).Swap(m.ctx, swap)
	const check = "swaps compare revisions"
	switch {
	case before != nil && swap.Write != nil && swap.Expect == before.Modified && swap.Write.Id.Uid != before.Resource.Id.Uid:
		if !errors.Is(err, storage.ErrWrongUid) {
			failCheck(check, "a swap with another uid: got error %v, want ErrWrongUid", quoteError(err))
		}
		return
	case err != nil:
		failCheck(check, "Swap: %v", err)
	}
	right := before == nil && swap.Expect == 0 || before != nil && swap.Expect == before.Modified
	if got.Done != right || got.Revision < 1 {
		failCheck(check, "a swap that expects revision %d: done is %v at revision %d, stored is %v", swap.Expect, got.Done, got.Revision, before)
	}
	want := before
	switch {
	case !right || before == nil && swap.Delete != nil:
		if before != nil && got.Revision < before.Modified {
			failCheck(check, "the answer to a swap is of revision %d, the resource of %d", got.Revision, before.Modified)
		}
	default:
		if swap.Delete != nil {
			op.Delete = before.Resource.Id
		} else if got.Stored == nil {
			failCheck(check, "a swap that writes returned no record")
		}
		m.store.commit([]storage.Op{op}, []*resourcepb.Resource{resourceOf(got.Stored)})
		m.number()
		c := m.store.changes[len(m.store.changes)-1]
		if got.Revision <= c.after || got.Revision > c.upTo || c.now != nil && got.Revision != c.now.Modified {
			failCheck("revisions rise", "a swap between the revisions %d and %d has %d", c.after, c.upTo, got.Revision)
		}
		if c.now != nil {
			want = c.now
		}
	}
	if (got.Stored == nil) != (want == nil) {
		failCheck(check, "Swap returned the record %v, want %v", got.Stored, want)
	}
	if want != nil {
		if err := compareRecords(*got.Stored, *want); err != nil {
			failCheck(check, "the record that Swap returned: %v", err)
		}
	}
	m.checkKey(m.handle(), operationID(op))
}

// scanSome reads a range at a revision to its end.
func (m *modelRun) scanSome() {
	p, span := pick(m.draw, m.points...), m.draw.keyRange()
	opts := history.ScanOptions{Revision: p.revision, Limit: m.draw.IntN(4), KeysOnly: m.draw.chance(20), Count: m.draw.chance(50)}
	if m.draw.chance(15) {
		opts.Revision, p.changes = 0, len(m.store.changes)
	}
	m.note("scan of %q to %q at revision %d, limit %d", keyOf(span.From), keyOf(span.To), opts.Revision, opts.Limit)
	want := m.store.scan(span, p.changes)
	for more := true; more; {
		scan, err := m.historian(m.handle()).Scan(m.ctx, span, opts)
		m.succeeds("the past stays", "Scan", err)
		want = checkScan(scan, opts, want)
		more, span, opts.Revision = scan.More, scan.Rest, scan.Revision
	}
}

// follow follows a range from a revision on.
func (m *modelRun) follow() {
	h, p, span := m.handle(), pick(m.draw, m.points...), m.draw.keyRange()
	if m.draw.chance(50) {
		span = history.Range{}
	}
	m.note("follower %d: %q to %q after revision %d", len(m.followers), keyOf(span.From), keyOf(span.To), p.revision)
	f, err := m.historian(h).Follow(m.ctx, span, p.revision)
	m.succeeds("followers report every change once", "Follow", err)
	m.followers = append(m.followers, &modelFollower{f, h, span, p.changes, p.revision})
	if len(m.followers) > 4 {
		m.followers[0].Close()
		m.followers = m.followers[1:]
	}
}

func (m *modelRun) readFollower() {
	if len(m.followers) > 0 {
		m.followToNewest(pick(m.draw, m.followers...))
	}
}

// followToNewest reads a follower up to the newest change.
func (m *modelRun) followToNewest(f *modelFollower) {
	const check = "followers report every change once"
	m.note("a follower after revision %d: read to the newest", f.revision)
	m.succeeds(check, "Bookmark", f.Bookmark(m.ctx))
	for {
		ctx, cancel := m.timeoutContext()
		changes, revision, err := f.Next(ctx)
		cancel()
		m.succeeds(check, "Next of a follower", err)
		f.accept(changes, revision)
		if len(changes) > 0 {
			continue
		}
		if missing := f.nextCommit(); len(missing) > 0 || revision < m.points[len(m.points)-1].revision {
			failCheck(check, "a follower is at revision %d of %d without %d changes", revision, m.points[len(m.points)-1].revision, len(missing))
		}
		return
	}
}
