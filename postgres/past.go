package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// ReadAt implements driver.Historian. Each attempt reads into memory, up to the bytes of a page, and what is complete is added.
func (r *reader) ReadAt(ctx context.Context, q *driver.HistoryQuery[position], add func(*driver.Version) error) (driver.HistoryPage[position], error) {
	look, err := r.lookOrWait(ctx, q)
	if err != nil {
		return driver.HistoryPage[position]{}, err
	}
	for i := range look.found {
		if err := add(&look.found[i]); err != nil {
			return driver.HistoryPage[position]{}, err
		}
	}
	if q.PrecedesWatch {
		r.inbox.listed(&look.past.At)
	}
	return look.past, nil
}

// lookOrWait reads a page at the position of the query. That of the present, if it has to be final, is mostly so at once: nothing is visible
// that comes after a number which is still to come. Otherwise it waits for that.
func (r *reader) lookOrWait(ctx context.Context, q *driver.HistoryQuery[position]) (look *pastLook, err error) {
	at := q.At
	read := func(ctx context.Context, conn *pgxpool.Conn) (err error) {
		look, err = r.lookAt(ctx, conn, at, q)
		return err
	}
	for {
		err = r.onPrimary(ctx, read)
		switch {
		case q.At != nil || !q.Final:
			return look, err
		case at != nil && errors.Is(err, storage.ErrCompacted):
			at = nil // others have gone on since, and forgotten that
			continue
		case err != nil || !look.later:
			return look, err
		}
		newest, err := r.history.lookUpNumber(ctx, 0)
		if err != nil {
			return nil, err
		}
		at = &newest.at
	}
}

// pastLook is one attempt at a page of the past, in one snapshot.
type pastLook struct {
	*history
	conn    *pgx.Conn
	q       *driver.HistoryQuery[position]
	at      position
	now     bool // the position is that of the snapshot, or nothing that is asked for has changed since
	later   bool // nothing was read, because something is visible that is not final
	found   []driver.Version
	bytes   int
	counted bool
	past    driver.HistoryPage[position]
}

// lookAt reads a page at a position; nil is the present one. What the statements depend on is sent with the one before.
func (r *reader) lookAt(ctx context.Context, conn *pgxpool.Conn, at *position, q *driver.HistoryQuery[position]) (*pastLook, error) {
	l := &pastLook{history: r.history, conn: conn.Conn(), q: q}
	var err error
	if at == nil {
		err = l.beginNow(ctx)
	} else {
		l.at = *at
		err = l.beginAt(ctx)
	}
	defer l.end()
	l.past.At = l.at
	if err == nil && !l.later {
		err = l.read(ctx)
	}
	if err == nil && !l.later && !l.counted {
		err = l.count(ctx)
	}
	return l, err
}

// beginNow takes the present snapshot, and finds out at which position it is.
func (l *pastLook) beginNow(ctx context.Context) error {
	final, server, err := l.finalOn(ctx, l.conn)
	if err != nil {
		return err
	}
	l.now = true
	var here string
	var asked pgx.Batch
	asked.Queue(repeatableRead)
	l.queueLast(&asked, final, &here, &l.at)
	if l.q.Final {
		asked.Queue(l.sql.followed, final+1).QueryRow(func(row pgx.Row) error { return row.Scan(nil, &l.later) })
	}
	if err := l.conn.SendBatch(ctx, &asked).Close(); err != nil {
		return err
	}
	if here != server {
		return notSent{errMoved} // it is tried again
	}
	if l.q.Final {
		return nil
	}
	return l.addAhead(ctx, l.conn, &l.at, final)
}

// mostSince is how many changes after a position are looked at, at most, in order to read the present instead.
const mostSince = 10000

// beginAt takes a snapshot, and reports whether the store can be read at the position: what it includes is there, and nothing of it was
// forgotten. Where nothing that is asked for has changed since, it can be read as the present.
func (l *pastLook) beginAt(ctx context.Context) error {
	var id driver.StoreID
	var oldest int64
	var there bool
	var more pgtype.Bool
	var piece []byte
	var asked pgx.Batch
	asked.Queue(repeatableRead)
	asked.Queue(l.sql.placeAt, l.at.revision, l.at.place).QueryRow(func(row pgx.Row) error {
		return row.Scan((*[16]byte)(&id), &oldest, &there, &more, &piece)
	})
	if b := l.bounds(); b != nil && len(l.at.ahead) == 0 {
		asked.Queue(l.sql.unchanged, b.first, b.end, l.at.revision, l.at.place, mostSince).QueryRow(func(row pgx.Row) error {
			return row.Scan(&l.now)
		})
	}
	err := l.conn.SendBatch(ctx, &asked).Close()
	if err == nil {
		err = l.check(id, oldest, &l.at, piece)
	}
	if err == nil && (more.Bool || !there && l.at.place != 0) {
		err = fmt.Errorf("%w: the position is inside a commit", storage.ErrInvalid)
	}
	if err == nil {
		err = l.checkAhead(ctx, l.conn, &l.at)
	}
	return settled(err)
}

// end ends the transaction, which only reads.
func (l *pastLook) end() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = l.conn.Exec(ctx, `rollback`)
}

// settled marks an error as one that no retry mends, where it says that what is asked for is gone or never was.
func settled(err error) error {
	if errors.Is(err, storage.ErrCompacted) || errors.Is(err, storage.ErrInvalid) {
		return permanent{err}
	}
	return err
}
