package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// lostAnswer is what is known about attempts whose answer did not come.
//
// Every operation carries a random token, which it leaves in the resource and in the log of changes. So a later statement can
// tell whether an earlier one took effect, whatever happened to the resource since. And an operation can be repeated with the
// same token and the same expected version: a version never comes back, so it takes effect once at most, also if the lost
// attempt is still on its way. Only a creation could happen twice, on both sides of somebody's deletion; therefore the server's
// process that had the lost attempt is waited for.
type lostAnswer struct {
	happened bool
	since    uint64 // transactions of the attempts are later than this one
	pids     []uint32
}

// attempt runs f on a connection, and takes note if its answer is lost.
func (b *Backend) attempt(ctx context.Context, lost *lostAnswer, f func(*pgx.Conn) error) error {
	conn, err := b.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	pid := conn.Conn().PgConn().PID()
	err = f(conn.Conn())
	if err != nil && fateOf(err) == unknown {
		lost.happened = true
		lost.pids = append(lost.pids, pid)
	}
	return err
}

// settle marks the operations that took effect in an attempt whose answer was lost.
func (b *Backend) settle(ctx context.Context, lost *lostAnswer, ops []*op) error {
	if len(ops) == 0 {
		return nil
	}
	conn, err := b.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if err := awaitEnd(ctx, conn, lost.pids); err != nil {
		return err
	}
	lost.pids = nil
	applied, err := b.tookEffect(ctx, conn.Conn(), lost, ops)
	if err != nil {
		return err
	}
	for _, o := range ops {
		if applied[string(o.token)] {
			o.applied = true
		}
	}
	return nil
}

func (b *Backend) tookEffect(ctx context.Context, conn *pgx.Conn, lost *lostAnswer, ops []*op) (map[string]bool, error) {
	keys, tokens := make([][]byte, len(ops)), make([][]byte, len(ops))
	for i, o := range ops {
		keys[i], tokens[i] = o.keyBytes, o.token
	}
	rows, err := conn.Query(ctx, b.sql.tokens, keys, tokens, xid8(lost.since))
	if err != nil {
		return nil, err
	}
	applied := make(map[string]bool)
	var token []byte
	_, err = pgx.ForEachRow(rows, []any{&token}, func() error {
		applied[string(token)] = true
		return nil
	})
	return applied, err
}

// awaitEnd waits until the server's processes with these numbers are gone or idle: a process whose client is gone ends as
// soon as it is done with its statement. Behind a pooler the numbers mean nothing, and there the wait is cut short.
func awaitEnd(ctx context.Context, conn *pgxpool.Conn, pids []uint32) error {
	if len(pids) == 0 {
		return nil
	}
	numbers := make([]int32, len(pids))
	for i, pid := range pids {
		numbers[i] = int32(pid)
	}
	patience := time.NewTimer(2 * time.Second)
	defer patience.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		var busy bool
		err := conn.QueryRow(ctx, `select exists (select from pg_stat_activity
			where pid = any($1) and pid <> pg_backend_pid() and usename = current_user and state is distinct from 'idle')`, numbers).Scan(&busy)
		if err != nil || !busy {
			return err
		}
		select {
		case <-tick.C:
		case <-patience.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
