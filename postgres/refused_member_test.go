//go:build integration

package postgres_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/faultproxy"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestRefusedMember makes the database itself refuse one key, by a foreign constraint, in batches with other keys. Only the write
// of that key fails.
func TestRefusedMember(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	schema := server.Schema(t)
	proxy := faultproxy.New(t, server.Addr)
	b := fixture.Open(t, server.At(t, proxy.Addr()).StoreURLIn(t, schema))
	if _, err := server.Connect(t).Exec(ctx, "alter table "+pgx.Identifier{schema, "resources"}.Sanitize()+
		" add check (position('middle'::bytea in key) = 0)"); err != nil {
		t.Fatal(err)
	}
	// A write whose answer is held back makes the others wait, so that they are sent together.
	payload := "payload" + unique()
	held := proxy.HoldAnswer([]byte(payload))
	errs := make(chan error, 1)
	go func() { _, err := b.WriteCAS(ctx, fixture.Resource("ahead", payload)); errs <- err }()
	sprung(t, held)
	type answer struct {
		name string
		err  error
	}
	answers := make(chan answer, 20)
	for i := range cap(answers) {
		name := fmt.Sprintf("key-%d", i)
		switch {
		case i == 10:
			name = "middle"
		case i > 10:
			name = fmt.Sprintf("other-%d", i) // applied after it
		}
		go func() { _, err := b.WriteCAS(ctx, fixture.Resource(name, "v")); answers <- answer{name, err} }()
	}
	lasts(time.Second) // the waiting of the calls is not visible from outside
	held.Cut()
	for range cap(answers) {
		a := <-answers
		var refused *pgconn.PgError
		if a.name == "middle" {
			if !errors.As(a.err, &refused) {
				t.Errorf("the write that is refused: %v", a.err)
			}
		} else if a.err != nil {
			t.Errorf("%s: %v", a.name, a.err)
		}
	}
	if err := <-errs; err != nil {
		t.Errorf("the write ahead: %v", err)
	}
}
