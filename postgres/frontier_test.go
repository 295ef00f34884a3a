//go:build integration

package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/faultproxy"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestNoteTip takes results of the function tip. Only a proven tip above the base replaces the base.
func TestNoteTip(t *testing.T) {
	t.Parallel()
	result := func(tip int64) []byte { return append(binary.BigEndian.AppendUint64(nil, uint64(tip)), "tokentok"...) }
	f := newFrontier(new(history))
	t.Cleanup(f.batch.Close)
	for _, step := range []struct {
		result                 []byte
		proven, unproven, base int64
	}{
		{nil, 0, 0, 0},
		{result(-5), 0, 5, 0},
		{result(7), 7, 0, 7},
		{result(6), 6, 0, 7},
		{result(-9), 0, 9, 7},
		{nil, 0, 0, 7},
	} {
		proven, unproven := f.noteTip(step.result)
		if base := f.base.Load().revision; proven != step.proven || unproven != step.unproven || base != step.base {
			t.Errorf("result %x: proven %d, unproven %d, base %d; expected %d, %d, %d", step.result, proven, unproven, base, step.proven, step.unproven, step.base)
		}
	}
}

// TestEmptyLogProvesNoTip checks a tip in a store without changes, with the base of another store. The base is not the tip.
func TestEmptyLogProvesNoTip(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	b := openHandle(t, ctx, env.Postgres(t).StoreURL(t))
	f := b.handle.reader.frontier
	f.base.Store(&position{revision: 100})
	conn := acquire(t, ctx, b.handle.database.main)
	if final, err := f.checkTip(ctx, conn.Conn()); err != nil || final != 0 {
		t.Errorf("the log is final up to %d, %v; expected 0", final, err)
	}
}

// textCount counts the executions of one statement.
type textCount struct {
	text atomic.Pointer[string]
	n    atomic.Int64
}

func (c *textCount) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if text := c.text.Load(); text != nil && data.SQL == *text {
		c.n.Add(1)
	}
	return ctx
}

func (*textCount) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestFarTipNeedsNotes reads a missing key with a base that is so far behind that the function tip cannot prove the tip. The notes are
// read without further attempts.
func TestFarTipNeedsNotes(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	tips := new(textCount)
	schema := server.Schema(t)
	b := openQuiet(t, ctx, server, schema, tips)
	read := func() {
		t.Helper()
		if _, err := b.Read(ctx, storage.StrongConsistency, orderResource("missing", "").Id); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("read a missing key: %v, expected ErrNotFound", err)
		}
	}
	if _, err := b.WriteCAS(ctx, orderResource("first", "")); err != nil {
		t.Fatal(err)
	}
	read()
	other := openHandle(t, ctx, server.StoreURLIn(t, schema))
	var writers sync.WaitGroup
	for n := range 32 {
		writers.Go(func() {
			for m := range maxTipSteps / 32 {
				if _, err := other.WriteCAS(ctx, orderResource(fmt.Sprintf("more-%d-%d", n, m), "")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	tips.text.Store(&b.handle.database.sql.tip)
	read()
	if n := tips.n.Load(); n != 0 {
		t.Errorf("%d attempts without the notes, expected none", n)
	}
}

// TestNoTipOfAStandby runs the statements of strong answers as if their transaction had begun on a standby, with an unknown base. None
// returns a tip.
func TestNoTipOfAStandby(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	b := openHandle(t, ctx, server.StoreURL(t))
	if _, err := b.WriteCAS(ctx, orderResource("first", "")); err != nil {
		t.Fatal(err)
	}
	conn, sql := server.Connect(t), b.handle.database.sql
	key := []byte("missing")
	base := []any{int64(1), int32(0), []byte("nothing!")}
	for name, s := range map[string]struct {
		sql       string
		arguments []any
	}{
		"read":     {sql.readStrong, []any{key}},
		"reads":    {sql.readMany, []any{[][]byte{key}}},
		"list":     {sql.strongList, []any{key, key, nil}},
		"children": {sql.strongChildren, []any{key}},
		"tip":      {sql.tip, nil},
	} {
		tx, err := conn.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(ctx, s.sql, append(s.arguments, base...)...); err == nil || !strings.Contains(err.Error(), "standby") {
			t.Errorf("%s: %v, expected an error about the standby", name, err)
		}
		if err := tx.Rollback(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSilentStandby acquires a connection to a standby that does not answer the question for its role. The connection is given up.
func TestSilentStandby(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	pair := env.StartPostgresPair(t)
	proxy := faultproxy.New(t, pair.Standby.Addr)
	config, err := pgxpool.ParseConfig(pair.Standby.At(t, proxy.Addr()).URL)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	proxy.HoldAnswer([]byte("pg_is_in_recovery"))
	conn, err := primary(ctx, pool)
	if err == nil {
		conn.Release()
	}
	if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		t.Errorf("acquired a connection to a silent standby: %v, the test's context: %v; expected an end before the test's", err, ctx.Err())
	}
}
