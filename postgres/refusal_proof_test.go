//go:build integration

package postgres

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestRefusalsWithoutAProof proves refused mutations while no strong read succeeds. The answer is the error of the read, because the refusal may be
// out of date.
func TestRefusalsWithoutAProof(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prevent  func(t *testing.T, ctx context.Context, server *env.PostgresServer, schema string, b *Backend) context.Context
		expected func(error) bool
	}{
		"the caller has left": {func(_ *testing.T, ctx context.Context, _ *env.PostgresServer, _ string, _ *Backend) context.Context {
			left, cancel := context.WithCancel(ctx)
			cancel()
			return left
		}, func(err error) bool { return errors.Is(err, context.Canceled) }},
		"the handle is closed": {func(t *testing.T, ctx context.Context, _ *env.PostgresServer, _ string, b *Backend) context.Context {
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			return ctx
		}, func(err error) bool { return errors.Is(err, storage.ErrClosed) }},
		"the server refuses the read": {func(t *testing.T, ctx context.Context, server *env.PostgresServer, schema string, _ *Backend) context.Context {
			if _, err := server.Connect(t).Exec(ctx, "alter table "+pgx.Identifier{schema, "journal"}.Sanitize()+" rename to renamed"); err != nil {
				t.Fatal(err)
			}
			return ctx
		}, func(err error) bool { return hasCode(err, "42P01") }},
		"the store has moved": {func(t *testing.T, ctx context.Context, server *env.PostgresServer, schema string, b *Backend) context.Context {
			fence := driver.Fence{Target: "elsewhere", Moved: true}.Encode()
			if _, err := server.Connect(t).Exec(ctx, "insert into "+pgx.Identifier{schema, "journal"}.Sanitize()+" (name, value, revision) values ('~fence', $1, gen_random_uuid())", fence); err != nil {
				t.Fatal(err)
			}
			return ctx
		}, func(err error) bool { return errors.Is(err, storage.ErrMoved) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := fixture.Context(t)
			server := env.Postgres(t)
			schema := server.Schema(t)
			b := openHandle(t, ctx, server.StoreURLIn(t, schema))
			stored := createdResource(t, ctx, b, "stored")
			call := c.prevent(t, ctx, server, schema, b)
			for verb, refusal := range map[driver.Verb]error{driver.Write: &storage.OpError{Err: storage.ErrCASFailure}, driver.Delete: nil} {
				m := mutationOf(t, verb, orderResource("stored", ""))
				m.conflict = driver.Stored{Exists: true, Uid: "another", Version: stored.Version}
				if err := b.handle.verifyResult(call, []*mutation{m}, refusal); !c.expected(err) || errors.Is(err, storage.ErrCASFailure) {
					t.Errorf("refusal %v: %v, expected the error of the strong read", refusal, err)
				}
			}
		})
	}
}

// TestRefusalsByTheRow changes a resource whose data has another uid than its row. The statements compare the uid of the row, so their answer
// is final if the version is still the same.
func TestRefusalsByTheRow(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	schema := server.Schema(t)
	b := openHandle(t, ctx, server.StoreURLIn(t, schema))
	stored := createdResource(t, ctx, b, "stored")
	if _, err := server.Connect(t).Exec(ctx, "update "+pgx.Identifier{schema, "resources"}.Sanitize()+" set uid = 'another'"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.WriteCAS(ctx, stored); !errors.Is(err, storage.ErrWrongUid) {
		t.Errorf("update: %v, expected ErrWrongUid", err)
	}
	if err := b.DeleteCAS(ctx, stored.Id, stored.Version); err != nil {
		t.Errorf("deletion: %v, expected no effect and no error", err)
	}
	var op *storage.OpError
	if _, err := b.Commit(ctx, []storage.Op{{Write: orderResource("other", "")}, {Write: stored}}); !errors.As(err, &op) || op.Index != 1 || !errors.Is(err, storage.ErrWrongUid) {
		t.Errorf("transaction: %v, expected ErrWrongUid of the second operation", err)
	}
}

// TestRefusalOfAnotherMoment creates a resource that the statement of a refused transaction did not find. An earlier operation may have failed since
// then, too, so neither the index of the statement nor that of the creation is known to be the lowest one.
func TestRefusalOfAnotherMoment(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	b := openHandle(t, ctx, env.Postgres(t).StoreURL(t))
	createdResource(t, ctx, b, "created")
	stored := createdResource(t, ctx, b, "stored")
	first, second := mutationOf(t, driver.Write, orderResource("created", "")), mutationOf(t, driver.Write, orderResource("stored", ""))
	second.conflict = driver.Stored{Exists: true, Uid: stored.Id.Uid, Version: stored.Version}
	refusal := &storage.OpError{Index: 1, Err: storage.ErrCASFailure}
	if err := b.handle.verifyResult(ctx, []*mutation{first, second}, refusal); !errors.Is(err, errBusy) {
		t.Errorf("an earlier creation: %v, expected a repetition", err)
	}
	if err := b.handle.verifyResult(ctx, []*mutation{mutationOf(t, driver.Write, orderResource("absent", "")), second}, refusal); err != refusal {
		t.Errorf("no change since the statement: %v, expected its refusal", err)
	}
	other := &storage.OpError{Index: 1, Err: storage.ErrWrongUid} // by the uid of a resource that was deleted since
	if err := b.handle.verifyResult(ctx, []*mutation{mutationOf(t, driver.Write, orderResource("absent", "")), second}, other); !errors.Is(err, errBusy) {
		t.Errorf("another refusal since the statement: %v, expected a repetition", err)
	}
}
