package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/batch"
)

// lookout finds out whether all is final up to changes that this handle has made. Those who ask at the same time share one look, which
// begins after the last of them has asked.
type lookout struct {
	*history
	batch *batch.Batcher[int64, struct{}]
}

func newLookout(h *history) *lookout {
	l := &lookout{history: h}
	l.batch = batch.New(batch.Options[int64]{MaxCalls: 1024, Direct: true}, l.look)
	return l
}

type lookoutMember = batch.Call[int64, struct{}]

var _ driver.Settler = (*reader)(nil)

var errNotThere = errors.New("no change of the number, or after it, is there")

// Settled implements driver.Settler.
func (r *reader) Settled(ctx context.Context, revision int64) error {
	for pause := time.Millisecond; ; pause = min(2*pause, maxPause) {
		_, err := r.lookout.batch.Do(ctx, revision)
		switch {
		case errors.Is(err, errNotThere):
			_, err = r.PositionAt(ctx, revision) // which can tell why
			return err
		case !errors.Is(err, errHeldBack):
			return err
		}
		if err := r.pause(ctx, pause, err); err != nil {
			return err
		}
	}
}

func (l *lookout) look(ctx context.Context, calls []*lookoutMember) {
	most := calls[0].Request
	for _, c := range calls {
		most = max(most, c.Request)
	}
	var final int64
	there := false
	err := l.retry(ctx, func(ctx context.Context) error {
		return l.query(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
			final, there, err = l.lookOnce(ctx, conn, most)
			return err
		})
	})
	for _, c := range calls {
		switch {
		case err == nil && !there:
			c.Done(struct{}{}, errNotThere)
		case err == nil && final < c.Request:
			c.Done(struct{}{}, errHeldBack)
		default:
			c.Done(struct{}{}, err)
		}
	}
}

// lookOnce asks how far the history is final, and whether there is a change of a number, or after it, both on one server and in one round
// trip: the change was committed before this was called, so it is found whichever of the two is asked first.
func (l *lookout) lookOnce(ctx context.Context, conn *pgx.Conn, revision int64) (final int64, there bool, err error) {
	var id driver.StoreID
	var asked pgx.Batch
	asked.Queue(readCommitted)
	asked.Queue(l.sql.final).QueryRow(func(row pgx.Row) error {
		_, final, err = scanFinal(row)
		return err
	})
	asked.Queue(l.sql.followed, revision).QueryRow(func(row pgx.Row) error {
		return row.Scan((*[16]byte)(&id), &there)
	})
	asked.Queue(`commit`)
	if err := conn.SendBatch(ctx, &asked).Close(); err != nil {
		return 0, false, err
	}
	if id != *l.id.Load() {
		l.id.Store(&id)
		return 0, false, errOther
	}
	return final, there, nil
}
