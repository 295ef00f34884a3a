package postgres

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
)

// history reads the log of changes.
type history struct {
	*database
	looks atomic.Uint64 // looks in the database that were asked for
}

// change is a row of the log.
type change struct {
	at      position
	more    bool // the next one belongs to the same commit
	kind    int16
	key     []byte
	version []byte
	data    []byte
	created int64
	writes  int64
	session uint64 // of an own change: the session that made it
}

// Bounds of what is read of the log at a time. One change is read however large it is.
const (
	pageRows  = 5000
	pageBytes = 1 << 20
)

// page is what comes after a position.
type page struct {
	changes []change // in order, all of them final
	view    view     // of whoever has passed the changes, if there are no more
	more    bool     // there may be more of them
	back    bool     // there are some that are not final yet
}

// cut drops what comes from the first change on that is not final.
func (p *page) cut(notFinal func(change) bool) {
	if i := slices.IndexFunc(p.changes, notFinal); i >= 0 {
		p.changes, p.more, p.back = p.changes[:i], false, true
	}
}

// end is the position after the changes.
func (p *page) end(at position) position {
	if n := len(p.changes); n > 0 {
		at = at.with(&p.changes[n-1].at)
	}
	if !p.more && p.view.look >= at.view.look {
		at.view = p.view
	}
	return at
}

// after reads what comes after a position: at most some changes, up to the number that is final, or the one up to which it
// is known to be.
func (h *history) after(ctx context.Context, conn *pgx.Conn, at *position, known int64, limit int) (p page, err error) {
	p.view.look = h.looks.Load()
	var batch pgx.Batch
	batch.Queue(readCommitted)
	batch.Queue(h.sql.final)
	batch.Queue(h.sql.changes, at.revision, at.place, limit, pageBytes)
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

// next reads what comes after a position without a gap between the numbers. That needs no look at the notes: each number
// is drawn once, by one commit, so where all numbers are visible nothing can come in between any more.
func (h *history) next(ctx context.Context, conn *pgx.Conn, at *position, limit int) (p page, err error) {
	rows, _ := conn.Query(ctx, h.sql.changes, at.revision, at.place, limit, pageBytes) // an error shows in the rows
	p.changes, p.more, err = h.scan(rows, at, limit)
	last := at.revision
	p.cut(func(c change) bool {
		gap := c.at.revision > last+1
		last = c.at.revision
		return gap
	})
	return p, err
}

// scan reads the rows of the statement changes. full says that a bound was reached.
func (h *history) scan(rows pgx.Rows, at *position, limit int) (found []change, full bool, err error) {
	var id pgtype.UUID
	var oldest, revision pgtype.Int8
	var proof, key, version, piece, data []byte
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
			at: position{revision: revision.Int64, place: place.Int32}, more: more.Bool, kind: kind.Int16,
			key: key, version: version, data: data, created: created.Int64, writes: writes.Int64,
		}
		copy(c.at.piece[:], piece)
		bytes += len(data)
		found = append(found, c)
		return nil
	})
	if err == nil && !checked {
		err = errOther
	}
	return found, len(found) >= limit || bytes >= pageBytes, err
}

// errDamaged ends watches at once, as nobody knows which of them want the change: leaving it out would be a gap that nobody hears
// of, and no waiting mends it. Whoever lists again goes on behind it.
var errDamaged = fmt.Errorf("%w: a row of the log is damaged", storage.ErrCompacted)

// eventsOf turns changes, in order, into events. Only a key that cannot be read is an error.
func eventsOf(changes []change) ([]*event, error) {
	events := make([]*event, len(changes))
	for i, c := range changes {
		k, err := key.Parse(c.key)
		if err != nil {
			return nil, fmt.Errorf("%w: change %d: %w", errDamaged, c.at.revision, err)
		}
		res, err := codec.DecodeOf(k, c.data, versionText(c.version))
		events[i] = &event{
			Key: k, Delete: c.kind == kindDelete, Resource: res, Damage: err, Size: len(c.data), At: c.at,
			Revision: c.at.revision, CreateRevision: c.created, Writes: c.writes,
		}
		if c.more || c.at.place > 0 {
			events[i].Commit = c.at.revision
		}
		events[i].CommitContinues = c.more && i == len(changes)-1
	}
	return events, nil
}

type event = driver.Event[position]
