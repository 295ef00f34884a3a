package conformance

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// The handles below have one bug each. See defects for the bug and its case.

// lagging answers every third read with the state before the last write.
type lagging struct {
	*handle
	strong bool
	mu     sync.Mutex
	reads  int
	before map[string]*resourcepb.Resource
}

func (b *lagging) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	before, readErr := b.handle.Read(ctx, strong, res.GetId())
	stored, err := b.handle.WriteCAS(ctx, res)
	if err == nil && readErr == nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.before == nil {
			b.before = make(map[string]*resourcepb.Resource)
		}
		b.before[keyOf(res.Id)] = before
	}
	return stored, err
}

func (b *lagging) Read(ctx context.Context, c storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	b.mu.Lock()
	b.reads++
	before := b.before[keyOf(id)]
	lag := b.reads%3 == 0 && before != nil && b.strong == (c == strong)
	b.mu.Unlock()
	res, err := b.handle.Read(ctx, c, id)
	if lag && err == nil {
		return clone(before), nil
	}
	return res, err
}

// sharing returns its own copies.
type sharing struct{ *handle }

func (b sharing) Read(ctx context.Context, c storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	if res, err := b.handle.Read(ctx, c, id); err != nil {
		return res, err
	}
	b.handle.mu.Lock()
	defer b.handle.mu.Unlock()
	return b.rows[keyOf(id)], nil
}

// stamping writes the new version into its argument.
type stamping struct{ *handle }

func (b stamping) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	stored, err := b.handle.WriteCAS(ctx, res)
	if err == nil {
		res.Version = stored.Version
	}
	return stored, err
}

// without returns a list without some resources, nil if none is left.
func without(list []*resourcepb.Resource, leaveOut func(*resourcepb.Resource) bool) []*resourcepb.Resource {
	if list = slices.DeleteFunc(list, leaveOut); len(list) == 0 {
		return nil
	}
	return list
}

// literalKinds takes the wildcard for a kind's name.
type literalKinds struct{ *handle }

func (b literalKinds) List(ctx context.Context, c storage.ReadConsistency, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) ([]*resourcepb.Resource, error) {
	list, err := b.handle.List(ctx, c, typ, tenancy, prefix)
	return without(list, func(res *resourcepb.Resource) bool {
		return typ.Group != storage.Wildcard && res.Id.Type.Kind != typ.Kind
	}), err
}

// patterns takes the prefix for a pattern, as databases like to.
type patterns struct{ *handle }

func (b patterns) List(ctx context.Context, c storage.ReadConsistency, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) ([]*resourcepb.Resource, error) {
	list, err := b.handle.List(ctx, c, typ, tenancy, "")
	pattern := strings.NewReplacer("%", "*", "_", "?").Replace(prefix) + "*"
	return without(list, func(res *resourcepb.Resource) bool {
		matches, _ := path.Match(pattern, res.Id.Name)
		return !matches
	}), err
}

// lazy opens its watches at the first Next.
type lazy struct{ *handle }

func (b lazy) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) (storage.Watch, error) {
	w, err := b.handle.WatchList(ctx, typ, tenancy, prefix)
	if err != nil {
		return nil, err
	}
	return &lazyWatch{watch: w.(*watch), open: func() (storage.Watch, error) {
		return b.handle.WatchList(context.WithoutCancel(ctx), typ, tenancy, prefix)
	}}, nil
}

type lazyWatch struct {
	*watch
	open func() (storage.Watch, error)
	once sync.Once
}

func (w *lazyWatch) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	w.once.Do(func() {
		recalls := w.recalls
		w.Close()
		opened, _ := w.open()
		w.watch = opened.(*watch)
		w.recalls = recalls
	})
	return w.watch.Next(ctx)
}

// numeric insists that versions look like its own.
type numeric struct{ *handle }

func (b numeric) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	if v := res.GetVersion(); v != "" {
		if _, err := strconv.Atoi(v[min(4, len(v)):]); err != nil {
			return nil, fmt.Errorf("%w: version: %w", storage.ErrInvalid, err)
		}
	}
	return b.handle.WriteCAS(ctx, res)
}

// strictDelete fails a delete of another uid.
type strictDelete struct{ *handle }

func (b strictDelete) DeleteCAS(ctx context.Context, id *resourcepb.ID, version string) error {
	if _, err := b.handle.Read(ctx, strong, withUid(id, "")); err == nil {
		if _, err := b.handle.Read(ctx, strong, id); errors.Is(err, storage.ErrNotFound) {
			return storage.ErrWrongUid
		}
	}
	return b.handle.DeleteCAS(ctx, id, version)
}

// sizes has a limit of its own, with a text that does not say so.
type sizes struct {
	*handle
	most int
}

func (b sizes) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	if b.most > 0 && sizeOf(res) > b.most {
		return nil, storage.ErrTooLarge
	}
	stored, err := b.handle.WriteCAS(ctx, res)
	if errors.Is(err, storage.ErrTooLarge) && sizeOf(res) == 1<<20+1 {
		return clone(res), nil
	}
	return stored, err
}

// knowing drops unknown fields.
type knowing struct{ *handle }

func (b knowing) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	data, err := proto.Marshal(res)
	if err != nil {
		return b.handle.WriteCAS(ctx, res)
	}
	var known resourcepb.Resource
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, &known); err != nil {
		return nil, err
	}
	return b.handle.WriteCAS(ctx, &known)
}

// pointing returns the mismatch as a pointer, which errors.As does not find.
type pointing struct{ *handle }

func (b pointing) Read(ctx context.Context, c storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	res, err := b.handle.Read(ctx, c, id)
	if m, ok := err.(storage.GroupVersionMismatchError); ok {
		return nil, &m
	}
	return res, err
}

// tireless ignores contexts.
type tireless struct{ *handle }

func (b tireless) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	return b.handle.WriteCAS(context.WithoutCancel(ctx), res)
}

// undead answers reads after it was closed.
type undead struct{ *handle }

func (b *undead) Read(ctx context.Context, c storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	return b.store.open().Read(ctx, c, id)
}

// few takes few operations at once.
type few struct{ *handle }

func (few) MaxOps() int { return 8 }
