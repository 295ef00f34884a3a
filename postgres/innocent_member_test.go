//go:build integration

package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestInnocentMemberLosesItsConnection makes the database refuse one member of a batch, and cut the connection of the other when
// that is then sent alone. The other one was not refused: it must be repeated, and must not get the first one's error.
func TestInnocentMemberLosesItsConnection(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	b := opened(t, ctx)
	name := func(of string) string { return pgx.Identifier{b.handle.database.opts.Schema, of}.Sanitize() }
	for _, sql := range []string{
		"create sequence " + name("ticks"),
		"create function " + name("stranger") + `() returns trigger language plpgsql as $$ begin
			if position('bad'::bytea in new.key) > 0 then
				raise exception using errcode = '23514', message = 'bad';
			elsif nextval('` + name("ticks") + `') = 1 then
				perform pg_terminate_backend(pg_backend_pid());
			end if;
			return new;
		end $$`,
		"create trigger stranger before insert on " + name("resources") + " for each row execute function " + name("stranger") + "()",
	} {
		if _, err := b.handle.database.main.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	var ms []*mutation
	for _, name := range []string{"bad", "good"} {
		k := key.Key{Group: "g", Kind: "Kind", Name: name}
		o, err := newWrite(k, &resourcepb.Resource{Id: k.ID("uid", "v1")})
		if err != nil {
			t.Fatal(err)
		}
		ms = append(ms, o)
	}
	bad, good := ms[0], ms[1]
	if err := b.handle.carryOut(ctx, ms, func() {}); err != nil {
		t.Errorf("the batch: %v", err)
	}
	if _, err := good.decide(); err != nil || !good.isApplied {
		t.Errorf("the write that nobody refused: %v, applied: %v", err, good.isApplied)
	}
	if _, err := bad.decide(); !hasCode(err, "23514") || bad.isApplied {
		t.Errorf("the write that is refused: %v, applied: %v", err, bad.isApplied)
	}
}
