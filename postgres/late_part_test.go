//go:build integration

package postgres

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestTimeEndsForAllWrites runs a statement of several writes whose time ends between its first read of the clock and the next. A
// write that was omitted because of that must not get a conflict.
func TestTimeEndsForAllWrites(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	b := opened(t, ctx)
	var ms []*mutation
	for _, name := range []string{"one", "two", "three"} {
		k := key.Key{Group: "g", Kind: "Kind", Name: name}
		stored, err := b.WriteCAS(ctx, &resourcepb.Resource{Id: k.ID("uid", "v1")})
		if err != nil {
			t.Fatal(err)
		}
		o, err := newWrite(k, stored)
		if err != nil {
			t.Fatal(err)
		}
		ms = append(ms, o)
	}
	slices.SortFunc(ms, func(x, y *mutation) int { return bytes.Compare(x.keyBytes, y.keyBytes) })
	name := func(of string) string { return pgx.Identifier{b.handle.database.opts.Schema, of}.Sanitize() }
	for _, sql := range []string{
		"create sequence " + name("ticks"),
		"create function " + name("clock") + "() returns timestamptz volatile language sql as " +
			"$$ select timestamptz '2000-01-01 00:00:00Z' + nextval('" + name("ticks") + "') * interval '1s' $$",
	} {
		if _, err := b.handle.database.main.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	text := strings.ReplaceAll(b.handle.database.sql.updateMany, "clock_timestamp()", name("clock")+"()")
	if text == b.handle.database.sql.updateMany {
		t.Fatal("the statement does not read the clock")
	}
	b.handle.database.sql.updateMany = text
	conn, err := b.handle.database.main.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	first := time.Date(2000, time.January, 1, 0, 0, 1, 0, time.UTC)
	if err := b.handle.sender.updateMany(ctx, conn.Conn(), &attempt{expires: first.Add(time.Millisecond)}, ms); err != nil {
		t.Fatal(err)
	}
	for _, o := range ms {
		if _, err := o.decide(); err != nil || !o.isApplied {
			t.Errorf("a write of what is stored: %v, applied: %v", err, o.isApplied)
		}
	}
}
