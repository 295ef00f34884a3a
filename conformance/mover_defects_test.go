package conformance

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// counting counts the writes and the lists of all handles.
type counting struct {
	storage.Backend
	s *shared
}

func (b counting) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	if driver.GuardOf(ctx) == nil { // the fence admits the writes of the tool
		b.s.writes.Add(1)
	}
	return b.Backend.WriteCAS(ctx, res)
}

func (b counting) List(ctx context.Context, c storage.ReadConsistency, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) ([]*resourcepb.Resource, error) {
	defer b.s.lists.Add(1)
	return b.Backend.List(ctx, c, typ, tenancy, prefix)
}

// late closes the store only after it was listed and more was written.
type late struct {
	driver.GuardedMover
	s *shared
}

func (m *late) SetFence(_ context.Context, target *string) error {
	before, there := m.s.lists.Load(), *target
	go func() {
		m.s.awaitWrites(before)
		_ = m.GuardedMover.SetFence(context.Background(), &there) // the test shows whether it did
	}()
	return nil
}

// lying acknowledges the first write that the fence refuses.
type lying struct {
	storage.Backend
	once sync.Once
}

func (b *lying) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	got, err := b.Backend.WriteCAS(ctx, res)
	if errors.Is(err, storage.ErrFenced) {
		b.once.Do(func() { got, err = res, nil })
	}
	return got, err
}

// updatesPass accepts updates that the fence refuses.
type updatesPass struct{ storage.Backend }

func (b updatesPass) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	got, err := b.Backend.WriteCAS(ctx, res)
	if errors.Is(err, storage.ErrFenced) && res.Version != "" {
		return res, nil
	}
	return got, err
}

// deletesPass accepts deletes that the fence refuses.
type deletesPass struct{ storage.Backend }

func (b deletesPass) DeleteCAS(ctx context.Context, id *resourcepb.ID, version string) error {
	err := b.Backend.DeleteCAS(ctx, id, version)
	if errors.Is(err, storage.ErrFenced) {
		return nil
	}
	return err
}

// passing says that every transaction was carried out.
func passing(_ context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	return make([]*resourcepb.Resource, len(ops)), nil
}

// unguarded writes whatever its guard says.
type unguarded struct{ storage.Backend }

func (b unguarded) WriteCAS(_ context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	return b.Backend.WriteCAS(context.Background(), res)
}

// leased reads the note of a guard, and then writes without the guard, as under a lease. A takeover happens while one write is
// delayed after its read, until the store has been listed.
type leased struct {
	storage.Backend
	driver.GuardedMover
	s *shared
}

func (b leased) WriteNote(ctx context.Context, name string, value []byte, revision string) (string, error) {
	if revision != "" {
		b.s.takeover.Store(true)
		select {
		case <-b.s.delayedCh:
		case <-ctx.Done():
		}
	}
	return b.GuardedMover.WriteNote(ctx, name, value, revision)
}

func (b leased) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	if g := driver.GuardOf(ctx); g != nil {
		if _, now, err := b.ReadNote(ctx, g.Note); err != nil || now != g.Revision {
			return nil, errors.Join(err, g.Superseded())
		}
		if b.s.takeover.CompareAndSwap(true, false) {
			close(b.s.delayedCh)
			select {
			case <-b.s.listedCh:
			case <-ctx.Done():
			}
		}
	}
	return b.Backend.WriteCAS(context.Background(), res)
}

func (b leased) List(ctx context.Context, c storage.ReadConsistency, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) ([]*resourcepb.Resource, error) {
	defer b.s.closeListed()
	return b.Backend.List(ctx, c, typ, tenancy, prefix)
}

// withoutGuard commits whatever the guard says.
func withoutGuard(b storage.Backend) func(context.Context, []storage.Op) ([]*resourcepb.Resource, error) {
	return func(_ context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
		t, _ := storage.As[storage.Transactor](b)
		return t.Commit(context.Background(), ops)
	}
}

// contagious fails a write without a guard after one whose guard does not hold, as if they were one batch.
type contagious struct {
	storage.Backend
	s *shared
}

func (b contagious) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	if driver.GuardOf(ctx) == nil && b.s.stale.Load() {
		return nil, driver.ErrSuperseded
	}
	got, err := b.Backend.WriteCAS(ctx, res)
	if errors.Is(err, driver.ErrSuperseded) {
		b.s.stale.Store(true)
	}
	return got, err
}

// oneStep returns nothing after the first step.
type oneStep struct{ bulkReader }

func (r oneStep) ReadAfter(ctx context.Context, after []byte, limit int) ([]driver.Row, error) {
	if after != nil {
		return nil, nil
	}
	return r.bulkReader.ReadAfter(ctx, after, limit)
}

// backwards returns the rows of a step in reverse, except for the last row, where the next step begins.
type backwards struct{ bulkReader }

func (r backwards) ReadAfter(ctx context.Context, after []byte, limit int) ([]driver.Row, error) {
	rows, err := r.bulkReader.ReadAfter(ctx, after, limit)
	if len(rows) > 1 {
		slices.Reverse(rows[:len(rows)-1])
	}
	return rows, err
}

// generous returns one row more than it should.
type generous struct{ bulkReader }

func (r generous) ReadAfter(ctx context.Context, after []byte, limit int) ([]driver.Row, error) {
	return r.bulkReader.ReadAfter(ctx, after, limit+1)
}

// whole reads everything at once.
type whole struct{ bulkReader }

func (r whole) ReadAfter(ctx context.Context, after []byte, limit int) ([]driver.Row, error) {
	var all []driver.Row
	for len(all) < limit {
		rows, err := r.bulkReader.ReadAfter(ctx, after, limit-len(all))
		if err != nil || len(rows) == 0 {
			return all, err
		}
		all = append(all, rows...)
		after = all[len(all)-1].Key.Bytes()
	}
	return all, nil
}

// suspicious reports the last row of each step.
type suspicious struct{ bulkReader }

func (r suspicious) CheckColumns(ctx context.Context, after []byte, limit int) (wrong []driver.Key, last []byte, err error) {
	rows, err := r.ReadAfter(ctx, after, limit)
	if len(rows) > 0 {
		wrong = []driver.Key{rows[len(rows)-1].Key}
		last = wrong[0].Bytes()
	}
	return wrong, last, err
}

// versionless leaves out the versions.
type versionless struct{ bulkReader }

func (r versionless) ReadAfter(ctx context.Context, after []byte, limit int) ([]driver.Row, error) {
	rows, err := r.bulkReader.ReadAfter(ctx, after, limit)
	for i := range rows {
		rows[i].Version = ""
	}
	return rows, err
}

// unguardedLoader loads whatever the guard says.
type unguardedLoader struct{ loader }

func (l unguardedLoader) Load(_ context.Context, rows []driver.Row) error {
	return l.loader.Load(context.Background(), rows)
}

// ownerless loads resources without their owners.
type ownerless struct{ storage.Backend }

func (l ownerless) Load(ctx context.Context, rows []driver.Row) error {
	all, err := decoded(rows)
	for _, res := range all {
		res.Owner = nil
	}
	return errors.Join(err, commit(ctx, l.Backend, all))
}

// short leaves out the last row.
type short struct{ loader }

func (l short) Load(ctx context.Context, rows []driver.Row) error {
	return l.loader.Load(ctx, rows[:max(0, len(rows)-1)])
}

// replacing loads over stored resources.
type replacing struct{ storage.Backend }

func (l replacing) Load(ctx context.Context, rows []driver.Row) error {
	all, err := decoded(rows)
	for _, res := range all {
		if there, err := l.Read(ctx, strong, res.Id); err == nil {
			res.Version = there.Version
		}
	}
	return errors.Join(err, commit(ctx, l.Backend, all))
}

// loadInParts loads one row after the other until one cannot be.
type loadInParts struct{ storage.Backend }

func (l loadInParts) Load(ctx context.Context, rows []driver.Row) error {
	all, err := decoded(rows)
	for _, res := range all {
		if err == nil {
			_, err = l.WriteCAS(ctx, res)
		}
	}
	return err
}

// twice loads, and writes the first row again if no other caller did.
type twice struct {
	loader
	storage.Backend
}

func (l twice) Load(ctx context.Context, rows []driver.Row) error {
	if err := l.loader.Load(ctx, rows); err != nil {
		return err
	}
	all, err := decoded(rows[:1])
	if err != nil || all[0].Id.Name != "thing-0000" { // the rule changes others itself, and would fail to
		return err
	}
	got, err := l.Read(ctx, strong, all[0].Id)
	if err == nil {
		_, err = l.WriteCAS(ctx, got)
	}
	return err
}

// visible writes a resource for each note.
type visible struct {
	driver.GuardedMover
	storage.Backend
}

func (m visible) WriteNote(ctx context.Context, name string, value []byte, revision string) (string, error) {
	k := key.Key{Group: "notes", Kind: "Note", Name: name + strconv.Itoa(len(revision))}
	if _, err := m.WriteCAS(ctx, &resourcepb.Resource{Id: k.ID("uid", "v1")}); err != nil {
		return "", err
	}
	return m.GuardedMover.WriteNote(ctx, name, value, revision)
}
