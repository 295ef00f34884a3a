package postgres

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
)

// history reads the log of changes.
type history struct {
	*database
	pollCount   atomic.Uint64 // number of requested polls
	proofTarget atomic.Int64  // highest number that a requested poll has to reach
}

// request counts a request for a poll that reaches a number. The target is raised first: a poll that sees the count must see the target too.
func (h *history) request(last int64) (pollNumber uint64) {
	for target := h.proofTarget.Load(); target < last && !h.proofTarget.CompareAndSwap(target, last); {
		target = h.proofTarget.Load()
	}
	return h.pollCount.Add(1)
}

// change is a row of the log.
type change struct {
	at             position
	more           bool // the next change belongs to the same commit
	kind           int16
	key            []byte
	version        []byte
	data           []byte
	createRevision int64
	writes         int64
	session        uint64 // session of a change by this handle
}

// Bounds of a read of the log. One change is read regardless of its size.
const (
	pageRows  = 5000
	pageBytes = 1 << 20
)

// page contains the changes after a position.
type page struct {
	changes    []change // in order, all of them final
	view       view     // view of a position after the changes, if there are no more
	more       bool     // there may be more changes
	hasPending bool     // there are changes that are not final yet
	newest     int64    // the highest number that was read, also of changes that are not final
}

// cut drops all changes from the first one that is not final.
func (p *page) cut(notFinal func(change) bool) {
	if n := len(p.changes); n > 0 {
		p.newest = p.changes[n-1].at.revision
		if p.more {
			p.newest++ // there is at least one more
		}
	}
	if i := slices.IndexFunc(p.changes, notFinal); i >= 0 {
		p.changes, p.more, p.hasPending = p.changes[:i], false, true
	}
}

// end returns the position after the changes.
func (p *page) end(at position) position {
	if n := len(p.changes); n > 0 {
		at = at.with(&p.changes[n-1].at)
	}
	if !p.more && p.view.pollNumber >= at.view.pollNumber {
		at.view = p.view
	}
	return at
}

// after reads the changes after a position, up to a limit, and up to the final number. known is a number that is known to be
// final.
func (h *history) after(ctx context.Context, conn *pgx.Conn, at *position, known int64, limit int) (p page, err error) {
	p.view.pollNumber = h.pollCount.Load()
	var batch pgx.Batch
	batch.Queue(readCommitted)
	batch.Queue(h.sql.final)
	batch.Queue(h.sql.changes, at.revision, at.index, limit, pageBytes)
	batch.Queue(`commit`)
	results := conn.SendBatch(ctx, &batch)
	defer func() { _ = results.Close() }() // an error shows in the reads before it
	if _, err := results.Exec(); err != nil {
		return page{}, err
	}
	if p.view.last, p.view.final, err = scanFinal(results.QueryRow()); err != nil {
		return page{}, err
	}
	rows, _ := results.Query() // an error shows in the rows
	p.changes, p.more, err = h.scan(rows, at, limit)
	if err == nil {
		_, err = results.Exec()
	}
	known = max(known, p.view.final)
	p.cut(func(c change) bool { return c.at.revision > known })
	return p, err
}

// next reads the changes after a position up to the first gap between the numbers. This needs no read of the notes: each number is
// drawn once, by one commit, so nothing can appear between consecutive visible numbers.
func (h *history) next(ctx context.Context, conn *pgx.Conn, at *position, limit int) (p page, err error) {
	rows, _ := conn.Query(ctx, h.sql.changes, at.revision, at.index, limit, pageBytes) // an error shows in the rows
	p.changes, p.more, err = h.scan(rows, at, limit)
	last := at.revision
	p.cut(func(c change) bool {
		gap := c.at.revision > last+1
		last = c.at.revision
		return gap
	})
	return p, err
}

// scan reads the rows of the statement changes. full means that a bound was reached.
func (h *history) scan(rows pgx.Rows, at *position, limit int) (found []change, full bool, err error) {
	var id pgtype.UUID
	var oldest, revision pgtype.Int8
	var proof, key, version, piece, data borrowedBytes
	var place pgtype.Int4
	var more pgtype.Bool
	var kind pgtype.Int2
	var created, writes pgtype.Int8
	checked := false
	bytes := 0
	into := []any{&id, &oldest, &proof, &revision, &place, &more, &kind, &key, &version, &piece, &data, &created, &writes}
	_, err = pgx.ForEachRow(rows, into, func() error {
		if !revision.Valid {
			if more.Bool {
				return errStandby
			}
			checked = true
			return h.check(id.Bytes, oldest.Int64, at, proof)
		}
		c := change{
			at: position{revision: revision.Int64, index: place.Int32}, more: more.Bool, kind: kind.Int16,
			createRevision: created.Int64, writes: writes.Int64,
		}
		copy(c.at.tokenPrefix[:], piece)
		row := slices.Concat(key, version, data) // one allocation
		c.key, row = row[:len(key):len(key)], row[len(key):]
		c.version, c.data = row[:len(version):len(version)], row[len(version):]
		bytes += len(data)
		found = append(found, c)
		return nil
	})
	if err == nil && !checked {
		err = errOther
	}
	return found, len(found) >= limit || bytes >= pageBytes, err
}

// borrowedBytes is a value of a row in the buffer of the connection, which the next row overwrites.
type borrowedBytes []byte

// ScanBytes implements pgtype.BytesScanner.
func (b *borrowedBytes) ScanBytes(value []byte) error {
	*b = value
	return nil
}

// eventsOf converts changes, in order, to events, which keep the data of the changes. It fails only for a malformed key.
func eventsOf(changes []change) ([]*event, error) {
	room, events := make([]event, len(changes)), make([]*event, len(changes))
	for i := range changes {
		c := &changes[i]
		res, err := codec.AdoptAt(c.key, c.data, versionText(c.version))
		k := key.Of(res.GetId()) // shares the memory of the resource
		if err != nil {
			var malformed error
			if k, malformed = key.Parse(c.key); malformed != nil {
				return nil, fmt.Errorf("%w: change %d: %w", errDamaged, c.at.revision, malformed)
			}
		}
		events[i] = &room[i]
		room[i] = event{
			Key: k, Delete: c.kind == kindDelete, Resource: res, Damage: err, Size: len(c.data), At: c.at,
			Revision: c.at.revision, CreateRevision: c.createRevision, Writes: c.writes,
		}
		if c.more || c.at.index > 0 {
			events[i].Commit = c.at.revision
		}
		events[i].CommitContinues = c.more && i == len(changes)-1
	}
	return events, nil
}

type event = driver.Event[position]

// position is a position in the history of a store. It includes all changes up to one, and possibly some later ones.
//
// A position refers to a change that was read, and not just to a number: after a crash, the server may draw a number again if it
// had no visible change. The prefix of the change's token proves that the change still exists, and that the history is the same.
type position struct {
	revision      int64
	index         int32
	tokenPrefix   [tokenPrefixSize]byte
	aboveFrontier []numberRange // included changes above some that were not final
	view          view

	aboveFrontierDigest [tokenPrefixSize]byte // prefix of the digest of the changes in aboveFrontier
}

// view is the result of a poll: the proven state of a position. It is valid for a running server, and not part of a cursor: after a
// crash the server may draw numbers again.
type view struct {
	pollNumber uint64 // polls are numbered in the order of their starts
	last       int64  // the last number drawn at that time
	final      int64  // all changes up to this number are included
}

const tokenPrefixSize = 8

// numberRange is a range of numbers, including both ends.
type numberRange struct{ from, to int64 }

func compare(x, y *position) int {
	return cmp.Or(cmp.Compare(x.revision, y.revision), cmp.Compare(x.index, y.index))
}

// contains reports whether the position includes a change.
func (p *position) contains(change *position) bool {
	return compare(change, p) <= 0 || p.isAboveFrontier(change.revision)
}

// lastAboveFrontier returns the highest number in aboveFrontier, or 0.
func (p *position) lastAboveFrontier() int64 {
	if len(p.aboveFrontier) == 0 {
		return 0
	}
	return p.aboveFrontier[len(p.aboveFrontier)-1].to
}

func (p *position) isAboveFrontier(revision int64) bool {
	_, found := slices.BinarySearchFunc(p.aboveFrontier, revision, func(s numberRange, revision int64) int {
		switch {
		case s.to < revision:
			return -1
		case s.from > revision:
			return 1
		}
		return 0
	})
	return found
}

// reaches reports whether p includes everything that was acknowledged when the last number drawn was the target's and its poll had
// not begun. If the server has drawn fewer numbers since, it lost the others in a crash, and they were not acknowledged.
func (p *position) reaches(target *position) bool {
	return p.view.pollNumber >= target.view.pollNumber && p.view.final >= min(target.view.last, p.view.last)
}

// with returns p with all changes up to next.
func (p position) with(next *position) position {
	if compare(next, &p) > 0 {
		p.revision, p.index, p.tokenPrefix = next.revision, next.index, next.tokenPrefix
	}
	if next.view.pollNumber >= p.view.pollNumber {
		p.view = next.view
	}
	if p.lastAboveFrontier() < p.revision { // not earlier: p may end inside a commit, and all ranges are proved together
		p.aboveFrontier = nil
	}
	return p
}

// append appends the encoded position.
func (p *position) append(payload []byte) []byte {
	payload = binary.AppendUvarint(payload, uint64(p.revision))
	payload = binary.AppendUvarint(payload, uint64(p.index))
	payload = append(payload, p.tokenPrefix[:]...)
	if len(p.aboveFrontier) > 0 {
		payload = append(payload, p.aboveFrontierDigest[:]...)
	}
	var last int64
	for _, s := range p.aboveFrontier {
		payload = binary.AppendUvarint(payload, uint64(s.from-last))
		payload = binary.AppendUvarint(payload, uint64(s.to-s.from))
		last = s.to
	}
	return payload
}

// parsePosition decodes a position that append has encoded.
func parsePosition(payload []byte) (p position, ok bool) {
	number := func(limit uint64) int64 {
		v, n := binary.Uvarint(payload)
		if n <= 0 || v > limit {
			ok = false
			return 0
		}
		payload = payload[n:]
		return int64(v)
	}
	ok = true
	p.revision = number(math.MaxInt64)
	p.index = int32(number(math.MaxInt32))
	if !ok || len(payload) < tokenPrefixSize {
		return p, false
	}
	payload = payload[copy(p.tokenPrefix[:], payload):]
	if len(payload) == 0 {
		return p, ok
	}
	if len(payload) <= tokenPrefixSize {
		return p, false
	}
	payload = payload[copy(p.aboveFrontierDigest[:], payload):]
	var last int64
	for ok && len(payload) > 0 {
		from := last + number(uint64(math.MaxInt64-last))
		to := from + number(uint64(math.MaxInt64-from))
		if from == last {
			return p, false
		}
		p.aboveFrontier = append(p.aboveFrontier, numberRange{from, to})
		last = to
	}
	return p, ok
}

// check returns an error unless the store, which has this id and oldest number, still has all changes after a position. piece is
// the token prefix of the change at the position, nil if there is none.
func (h *history) check(id driver.StoreID, oldest int64, at *position, piece []byte) error {
	switch {
	case id != *h.id.Load():
		h.id.Store(&id)
		return errOther
	case at.revision < oldest:
		return errPruned
	case at.revision > 0 && string(piece) != string(at.tokenPrefix[:]):
		return errForked
	}
	return nil
}

// How far the history is final.
//
// A writer first takes a note of the last number drawn, which is a shared advisory lock. Then it draws numbers, all above the
// note. It releases the lock when its commit is visible. A reader first reads the last number drawn, M; then the notes; then, in a
// later statement, the changes. All changes up to the lower of M and the lowest note are final: they are visible now, or never
// will be. The reason is that
//
//   - a writer that held a note when the notes were read draws numbers above that note;
//   - a writer that did not hold a note yet draws its numbers after M was read, so above M;
//   - a writer that had released its note is visible to the later statement.
//
// Numbers are drawn after the resources are locked. So for each key, and for transactions with a common key, the order of numbers
// is the order of commits, and a write that began after the acknowledgment of another has the higher number.

// scanFinal scans the row of the statement final, and returns the last number drawn and the last number of the final history. The
// changes must be read in a later statement. A standby does not have the notes.
func scanFinal(row pgx.Row, more ...any) (last, final int64, err error) {
	var noted pgtype.Int8
	var standby bool
	if err := row.Scan(append([]any{&last, &noted, &standby}, more...)...); err != nil {
		return 0, 0, err
	}
	if standby {
		return 0, 0, errStandby
	}
	if noted.Valid {
		return last, min(last, noted.Int64), nil
	}
	return last, last, nil
}
