//go:build integration

package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestDeletionAlone deletes some resources by the statement for a single one, and others with the same history by the function for
// several. Both must leave the same rows in the log.
func TestDeletionAlone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		updates int
		numbers bool // the row contains the numbers of its only change
	}{
		"created":                  {0, true},
		"created before version 8": {0, false},
		"updated":                  {17, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
			t.Cleanup(cancel)
			b := opened(t, ctx)
			conn := acquire(t, ctx, b.handle.database.main)
			a := &attempt{expires: time.Now().Add(time.Hour)}
			var changes []leftover
			for _, remove := range []func(ctx context.Context, conn *pgx.Conn, a *attempt, m *mutation) error{
				b.handle.changeOne,
				func(ctx context.Context, conn *pgx.Conn, a *attempt, m *mutation) error {
					return b.handle.apply(ctx, conn, a, []*mutation{m}, false)
				},
			} {
				res := written(t, ctx, b, c.updates)
				if !c.numbers {
					_, err := conn.Exec(ctx, b.handle.database.sql.withNames(`update $resources set created = null, writes = null, modified = null, modified_place = null
						where version = $1`), versionBytes(res.Version))
					if err != nil {
						t.Fatal(err)
					}
				}
				m := deletionOf(t, res)
				if err := remove(ctx, conn.Conn(), a, m); err != nil || !m.isApplied {
					t.Fatalf("applied: %v, %v", m.isApplied, err)
				}
				left, err := b.handle.Get(ctx, storage.StrongConsistency, m.Key)
				if left != nil || err != nil {
					t.Errorf("after the deletion: %v, %v", left, err)
				}
				changes = append(changes, leftoverOf(t, ctx, b, m, res))
			}
			if changes[0] != changes[1] {
				t.Errorf("one deletion left %+v, one among several %+v", changes[0], changes[1])
			}
			if want := int64(c.updates) + 1; changes[0].writes != want || changes[0].answeredWrites != want {
				t.Errorf("%+v, expected %d writes", changes[0], want)
			}
		})
	}
}

// TestDeletionWithoutLoggedCreation deletes a row without numbers whose creation is not in the log, for example after a manual
// change.
func TestDeletionWithoutLoggedCreation(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	b := opened(t, ctx)
	res := written(t, ctx, b, 0)
	for _, sql := range []string{
		`update $resources set created = null, writes = null, modified = null, modified_place = null where version = $1`,
		`delete from $changes where key = (select key from $resources where version = $1)`,
	} {
		if _, err := b.handle.database.main.Exec(ctx, b.handle.database.sql.withNames(sql), versionBytes(res.Version)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.DeleteCAS(ctx, res.Id, res.Version); err != nil {
		t.Error(err)
	}
	if left, err := b.handle.Get(ctx, storage.StrongConsistency, key.Of(res.Id)); left != nil || err != nil {
		t.Errorf("left %v, %v", left, err)
	}
}

// TestDeletionNotDone sends deletions that must not change anything.
func TestDeletionNotDone(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	b := opened(t, ctx)
	conn, other := acquire(t, ctx, b.handle.database.main), acquire(t, ctx, b.handle.database.main)
	res := written(t, ctx, b, 1)
	soon, expired := &attempt{expires: time.Now().Add(time.Hour)}, &attempt{expires: time.Now().Add(-time.Hour)}
	send := func(a *attempt, spoil func(m *mutation)) (*mutation, error) {
		m := deletionOf(t, res)
		spoil(m)
		err := b.handle.changeOne(ctx, conn.Conn(), a, m)
		if m.isApplied {
			t.Fatal("applied")
		}
		return m, err
	}
	if _, err := send(expired, func(*mutation) {}); !isLate(err) {
		t.Errorf("after its time: %v", err)
	}
	m, err := send(soon, func(m *mutation) {
		m.expectedVersion = make([]byte, versionSize)
		m.Version = versionText(m.expectedVersion)
	})
	if again, refusal := m.decide(); err != nil || again || refusal == nil || !m.conflict.Exists {
		t.Errorf("of another version: %v, %v, %v", again, refusal, err)
	}
	m, err = send(soon, func(m *mutation) { m.Uid = "another uid" })
	if again, refusal := m.decide(); err != nil || again || !m.conflict.Exists {
		t.Errorf("of another uid: %v, %v, %v", again, refusal, err)
	}
	m, err = send(soon, func(m *mutation) { m.keyBytes = []byte("nothing") })
	if again, refusal := m.decide(); err != nil || again || refusal != nil || m.conflict.Exists {
		t.Errorf("of nothing: %v, %v, %v", again, refusal, err)
	}
	tx, err := other.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, b.handle.database.sql.withNames("select from $resources where version = $1 for update"), versionBytes(res.Version)); err != nil {
		t.Fatal(err)
	}
	m, err = send(soon, func(*mutation) {})
	if again, refusal := m.decide(); err != nil || !again {
		t.Errorf("of a locked row: %v, %v, %v; expected another attempt", again, refusal, err)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if left, err := b.handle.Get(ctx, storage.StrongConsistency, key.Of(res.Id)); left == nil || err != nil {
		t.Errorf("left %v, %v", left, err)
	}
}

// leftover describes a deletion in the log, without its numbers, which differ.
type leftover struct {
	op                     int16
	more                   bool
	place                  int32
	version, data          bool // equal those of the deleted resource
	created, previous      bool // equal the numbers of its first and last write
	writes, answeredWrites int64
	answered               bool // the answer contains the number of its first write
}

func leftoverOf(t *testing.T, ctx context.Context, b *Backend, m *mutation, deleted *resourcepb.Resource) (c leftover) {
	t.Helper()
	c.answeredWrites = m.writes
	err := b.handle.database.main.QueryRow(ctx, b.handle.database.sql.withNames(`
		select d.op, d.more, d.place, d.version = $2 and d.token = $3, d.data = last.data, d.created = first.revision,
			d.previous = last.revision and d.previous_place = last.place, d.writes, d.created = $4
		from $changes d, $changes first, $changes last
		where d.key = $1 and d.revision = $5 and last.key = $1 and last.token = $2 and first.key = $1 and first.revision =
			(select max(revision) from $changes where key = $1 and op = 1 and writes = 1)`),
		m.keyBytes, versionBytes(deleted.Version), m.token, m.createRevision, m.revision).
		Scan(&c.op, &c.more, &c.place, &c.version, &c.data, &c.created, &c.previous, &c.writes, &c.answered)
	if err != nil {
		t.Fatal(err)
	}
	if want := (leftover{2, false, 0, true, true, true, true, c.writes, c.writes, true}); c != want {
		t.Errorf("the log has %+v, expected %+v", c, want)
	}
	return c
}

// written returns a resource that was created and then updated this many times.
func written(t *testing.T, ctx context.Context, b *Backend, updates int) *resourcepb.Resource {
	t.Helper()
	res := named("deleted", "first")
	for range updates + 1 {
		stored, err := b.WriteCAS(ctx, res)
		if err != nil {
			t.Fatal(err)
		}
		res = stored
	}
	return res
}

func deletionOf(t *testing.T, res *resourcepb.Resource) *mutation {
	t.Helper()
	m, err := newMutation(&driver.Mutation{Verb: driver.Delete, Key: key.Of(res.Id), Uid: res.Id.Uid, Version: res.Version})
	if err != nil {
		t.Fatal(err)
	}
	return m
}
