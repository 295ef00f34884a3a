package conformance

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/resourcepb"
)

// A store is the reference backend: every change is in one slice under one lock, and every answer is computed from it. It is slow
// and keeps everything, so a reader can verify it easily. If it is opened with a bug of broken_test.go, it has that bug. Bugs that
// a wrapper around a handle cannot have are here, each a call of has.
type store struct {
	name      string
	bug       string
	leak      chan struct{} // ends the goroutines that a bug leaks
	mu        sync.Mutex
	rows      map[string]*resourcepb.Resource
	log       []change
	wake      chan struct{} // closed and replaced at each change
	version   int
	lists     map[string][]*resourcepb.Resource // by continue token: the rest of the listing
	compacted int64                             // history is compacted up to this revision
	lister    chan struct{}                     // of the handle that listed last
	trip      *int                              // where a round trip began that a bug shares
}

type change struct {
	res     *resourcepb.Resource
	deleted bool
	last    int // the position after the whole transaction
}

func (s *store) has(bug string) bool { return s.bug == bug }

func newStore(bug string) *store {
	return &store{name: rand.Text(), bug: bug, leak: make(chan struct{}), rows: map[string]*resourcepb.Resource{}, wake: make(chan struct{}), lists: map[string][]*resourcepb.Resource{}}
}

// A handle is an opened backend on a store.
type handle struct {
	*store
	closed  chan struct{}
	once    sync.Once
	swapped map[string]int64 // the revisions of its swaps; mu guards it
}

func (s *store) open() *handle { return &handle{store: s, closed: make(chan struct{})} }

func (h *handle) Close() error {
	err := storage.ErrClosed
	h.once.Do(func() { close(h.closed); err = nil })
	if h.has("closing twice is an error") {
		return err
	}
	return nil
}

// ended returns a channel that is closed with the backend; watches wait for it.
func (h *handle) ended() <-chan struct{} {
	if h.has("watches outlive their backend") {
		return nil
	}
	return h.closed
}

// enter is the beginning of every call.
func (h *handle) enter(ctx context.Context, problems ...error) error {
	closed, problem := error(nil), errors.Join(problems...)
	select {
	case <-h.closed:
		closed = storage.ErrClosed
	default:
	}
	switch {
	case h.has("the context before the input"):
		return cmp.Or(closed, ctx.Err(), problem)
	case h.has("the input before the end"):
		return cmp.Or(problem, closed, ctx.Err())
	case h.has("the context before the end") && closed != nil:
		return cmp.Or(ctx.Err(), closed)
	}
	return cmp.Or(closed, problem, ctx.Err())
}

func (h *handle) Read(ctx context.Context, c storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	if err := h.enter(ctx, check.Consistency(c), errorOf(check.ID("id", id))); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	row := h.rows[h.key(id)]
	switch {
	case row == nil || id.Uid != "" && !h.sameUid(id.Uid, row.Id.Uid):
		return nil, storage.ErrNotFound
	case id.Type.GroupVersion != row.Id.Type.GroupVersion:
		return nil, storage.GroupVersionMismatchError{RequestedType: clone(id.Type), Stored: clone(row)}
	}
	return clone(row), nil
}

func (h *handle) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	results, err := h.commit(ctx, []storage.Op{{Write: res}})
	if err != nil {
		return nil, alone(err)
	}
	return results[0], nil
}

func (h *handle) DeleteCAS(ctx context.Context, id *resourcepb.ID, version string) error {
	if id == nil {
		return h.enter(ctx, invalid("id is nil"))
	}
	_, err := h.commit(ctx, []storage.Op{{Delete: id, Version: version}})
	return alone(err)
}

func (h *handle) MaxOps() int { return 64 }

func (h *handle) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	if len(ops) == 0 && !h.has("no operations are one result") {
		return nil, h.enter(ctx)
	}
	return h.commit(ctx, ops)
}

// alone takes the error of the only operation out of its OpError.
func alone(err error) error {
	var op *storage.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

func (h *handle) commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	if err := h.enter(ctx, errorOf(check.Ops(ops, h.MaxOps(), 0))); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	ops = h.decidedEarly(ops)
	for i, op := range ops {
		if err := h.decide(op); err != nil {
			if h.has("half a transaction") {
				h.apply(ops[:i])
			}
			if h.has("the highest index") {
				i = len(ops) - 1
			}
			return nil, &storage.OpError{Index: i, Err: err}
		}
	}
	if h.has("check, then act") {
		h.pause()
	}
	return h.apply(ops), nil
}

// decidedEarly returns ops without the conditions that a bug verifies before the commit.
func (h *handle) decidedEarly(ops []storage.Op) []storage.Op {
	checks, presence := h.has("checks come before the commit"), h.has("presence is tested before the commit")
	if !checks && !presence {
		return ops
	}
	var rest []storage.Op
	for _, op := range ops {
		early := (checks && op.Check != nil || presence && op.Present) && h.decide(op) == nil
		if early {
			op.Present = false
		}
		if op.Check == nil || !early {
			rest = append(rest, op)
		}
	}
	h.pause()
	return rest
}

// pause lets other goroutines run.
func (h *handle) pause() {
	h.mu.Unlock()
	for range 20 {
		runtime.Gosched()
	}
	h.mu.Lock()
}

// apply applies decided changes.
func (h *handle) apply(ops []storage.Op) []*resourcepb.Resource {
	results := make([]*resourcepb.Resource, len(ops))
	first := len(h.log)
	for i, op := range ops {
		key := h.key(opID(op))
		switch row := h.rows[key]; {
		case op.Write != nil:
			h.version++
			row = h.stored(op.Write)
			row.Version = h.name[:4] + strconv.Itoa(h.version)
			if h.has("versions count from one") {
				before, _ := strconv.Atoi(op.Write.Version)
				row.Version = strconv.Itoa(before + 1)
			}
			if h.has("input kept") {
				row.Data = op.Write.Data
			}
			h.rows[key] = row
			h.publish(change{res: row})
			results[i] = clone(row)
		case op.Delete != nil && row != nil && h.sameUid(row.Id.Uid, op.Delete.Uid):
			delete(h.rows, key)
			h.publish(change{res: row, deleted: true})
			for other, child := range h.rows {
				if h.has("a deletion deletes owned resources") && child.Owner != nil && keyOf(child.Owner) == keyOf(row.Id) {
					delete(h.rows, other)
				}
			}
		}
	}
	for i := range h.log[min(first, len(h.log)):] {
		h.log[first+i].last = len(h.log)
	}
	close(h.wake)
	h.wake = make(chan struct{})
	if h.has("results are in another order") {
		slices.Reverse(results)
	}
	return results
}

// stored returns the stored form of a resource.
func (h *handle) stored(res *resourcepb.Resource) *resourcepb.Resource {
	res = clone(res)
	if h.has("metadata lose trailing spaces") {
		for k, v := range res.Metadata {
			res.Metadata[k] = strings.TrimRight(v, " ")
		}
	}
	for _, status := range res.Status {
		if at := status.GetUpdatedAt(); at != nil && h.has("times are cut to microseconds") {
			at.Nanos -= at.Nanos % 1000
		}
	}
	return res
}

func (h *handle) sameUid(a, b string) bool {
	if h.has("uids are compared without trailing spaces") {
		a, b = strings.TrimRight(a, " "), strings.TrimRight(b, " ")
	}
	return a == b
}

// publish appends to the log.
func (h *handle) publish(c change) {
	n := len(h.log)
	switch {
	case h.has("dropped event") && h.version%7 == 6:
	case h.has("repeated event") && n%7 == 6:
		h.log = append(h.log, c, c)
	case h.has("events overtake") && n%7 == 6:
		h.log = append(h.log[:n-1], c, h.log[n-1])
	case h.has("a delete shows the id only") && c.deleted:
		h.log = append(h.log, change{res: &resourcepb.Resource{Id: c.res.Id}, deleted: true})
	default:
		h.log = append(h.log, c)
	}
}

func opID(op storage.Op) *resourcepb.ID { return cmp.Or(op.Write.GetId(), op.Delete, op.Check) }

func (h *handle) key(id *resourcepb.ID) string {
	if h.has("key parts joined by a slash") {
		return strings.ReplaceAll(keyOf(id), "\x00", "/")
	}
	if key := keyOf(id); h.has("keys are cut") {
		return key[:min(1000, len(key))]
	}
	return keyOf(id)
}

// decide is the decision tables.
func (h *handle) decide(op storage.Op) error {
	row := h.rows[h.key(opID(op))]
	uid, version := op.Check.GetUid(), op.Version
	switch {
	case op.Present && row == nil:
		return storage.ErrCASFailure
	case op.Delete != nil && !op.Present && (row == nil || !h.sameUid(row.Id.Uid, op.Delete.Uid)):
		return nil
	case op.Check != nil && version == "" && h.has("a check of an absent key is ignored"):
		return nil
	case op.Check != nil && version == "":
		if row != nil && uid != "" && !h.sameUid(uid, row.Id.Uid) {
			return storage.ErrWrongUid
		}
	case op.Delete != nil:
		uid = op.Delete.Uid
	case op.Write != nil:
		uid, version = op.Write.Id.Uid, op.Write.Version
	}
	switch {
	case row == nil && version == "":
		return nil
	case row == nil || h.has("the version before the uid") && version != row.Version:
		return storage.ErrCASFailure
	case h.has("writes compare the group version") && op.Write != nil && op.Write.Id.Type.GroupVersion != row.Id.Type.GroupVersion:
		return storage.ErrCASFailure
	case !h.sameUid(uid, row.Id.Uid) && uid != "":
		return storage.ErrWrongUid
	case version != row.Version:
		return storage.ErrCASFailure
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{storage.ErrInvalid}, args...)...)
}

func errorOf[T any](_ T, err error) error { return err }

func harnessOf(bug string) Harness {
	return Harness{
		NoMover: "the reference of these tests cannot be moved",
		Open:    func(testing.TB) storage.Backend { return newStore(bug).open() },
		Another: func(_ testing.TB, b storage.Backend) storage.Backend { return b.(*handle).store.open() },
	}
}

func TestReference(t *testing.T) {
	Run(t, harnessOf(""))
}
