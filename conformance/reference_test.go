package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/resourcepb"
)

// A store is the reference backend: every change is in one slice under one lock, and every answer is computed from it. It is slow
// and keeps everything, so a reader can verify it easily. It proves the cases of this package and the checks of package faults: if it
// is opened with a bug of broken_test.go or broken_faults_test.go, it has that bug. Each bug is a call of has or sometimes.
type store struct {
	name      string
	bug       string
	hasFaults bool          // see rarer
	leak      chan struct{} // ends the goroutines that a bug leaks
	mu        sync.Mutex
	rows      map[string]*resourcepb.Resource
	log       []change
	wake      chan struct{} // closed and replaced at each change
	version   int
	revision  int64                             // the newest one; 1 is the empty store
	lists     map[string][]*resourcepb.Resource // by continue token: the rest of the listing
	compacted int64                             // history is compacted up to this revision

	// The rest belongs to bugs.
	lister   chan struct{} // of the handle that listed last
	trip     *int          // where a round trip began that others share
	volatile int           // a crash loses the log from here on, unless it is negative
	reserved int64         // the revision before those that a transaction has reserved
	landing  bool          // a write that was given up arrives
	hidden   []change      // in the log, but not yet in lists
}

type change struct {
	key      string
	res      *resourcepb.Resource
	deleted  bool
	last     int // the position after the whole transaction
	revision int64
}

func (s *store) has(bug string) bool { return s.bug == bug }

// sometimes is true for one call in n, if the store has the bug.
func (s *store) sometimes(bug string, n int) bool { return s.has(bug) && rand.IntN(n) == 0 }

// rarer returns inFaults in a run with faults, which finds rarer defects than a case of the suite does.
func (s *store) rarer(inSuite, inFaults int) int {
	if s.hasFaults {
		return inFaults
	}
	return inSuite
}

func newStore(bug string) *store {
	return &store{
		name: fmt.Sprintf("%016x", rand.Uint64()), bug: bug, leak: make(chan struct{}), rows: map[string]*resourcepb.Resource{}, wake: make(chan struct{}),
		revision: 1, lists: map[string][]*resourcepb.Resource{}, volatile: -1,
	}
}

// A handle is an opened backend on a store.
type handle struct {
	*store
	conn    *connection // of watches, and of a remote
	closed  chan struct{}
	once    sync.Once
	swapped map[string]int64 // the revisions of its swaps; mu guards it
	asked   map[string]bool  // the uids of owners whose references it has returned; mu guards it
}

func (s *store) open() *handle {
	return &handle{store: s, closed: make(chan struct{}), swapped: map[string]int64{}, asked: map[string]bool{}}
}

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
		if !h.has("usable after Close") {
			closed = storage.ErrClosed
		}
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
		if h.has("bad ids are not found") && errors.Is(err, storage.ErrInvalid) {
			return nil, storage.ErrNotFound
		}
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	row := h.rows[h.key(id)]
	if c == strong && h.sometimes("strong reads lag", h.rarer(3, 50)) || c == eventual && h.sometimes("eventual reads lag", h.rarer(3, 50)) {
		row = h.beforeLastChange(h.key(id))
	}
	switch {
	case row == nil || id.Uid != "" && !h.sameUid(id.Uid, row.Id.Uid) && !h.has("reads ignore the uid"):
		return nil, storage.ErrNotFound
	case id.Type.GroupVersion != row.Id.Type.GroupVersion:
		mismatch := storage.GroupVersionMismatchError{RequestedType: clone(id.Type), Stored: clone(row)}
		if h.has("a mismatch by pointer") {
			return nil, &mismatch
		}
		return nil, mismatch
	case h.has("results shared"):
		return row, nil
	}
	return clone(row), nil
}

func (h *handle) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	sent := ctx
	if h.has("contexts ignored") || h.has("a cancelled write goes on") {
		sent = context.WithoutCancel(ctx)
	}
	if h.has("one byte too much is fine") && sizeOf(res) == 1<<20+1 {
		return clone(res), nil
	}
	results, err := h.commit(sent, []storage.Op{{Write: res}})
	if res.GetVersion() != "" && h.has("a cancelled write goes on") {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, alone(err)
	}
	if h.has("input changed") {
		res.Version = results[0].Version
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

func (h *handle) MaxOps() int {
	if h.has("no MaxOps") {
		return 8
	}
	return 64
}

func (h *handle) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	if len(ops) == 0 && !h.has("no operations are one result") {
		return nil, h.enter(ctx)
	}
	if h.has("the last operation on a key counts") {
		ops = lastOfEachKey(ops)
	}
	results, err := h.commit(ctx, ops)
	if errors.Is(err, storage.ErrTooLarge) && len(ops) > 1 && len(ops) <= h.MaxOps() && h.has("large transactions in parts") {
		for _, op := range ops {
			part, err := h.commit(ctx, []storage.Op{op})
			if err != nil {
				return nil, err
			}
			results = append(results, part...)
		}
		return results, nil
	}
	return results, err
}

func lastOfEachKey(ops []storage.Op) (last []storage.Op) {
	for i, op := range ops {
		if !slices.ContainsFunc(ops[i+1:], func(later storage.Op) bool { return keyOf(opID(later)) == keyOf(opID(op)) }) {
			last = append(last, op)
		}
	}
	return last
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
	maxSize := 1 << 20
	if h.has("the largest size is too large") {
		maxSize--
	}
	if err := h.enter(ctx, errorOf(check.Ops(ops, h.MaxOps(), maxSize))); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	ops = h.decidedEarly(ops)
	if h.sometimes("a revision is returned before it is final", 20) {
		h.reserve(len(ops))
		defer func() { h.reserved = 0 }()
	}
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
	return h.carryOut(ops), nil
}

// carryOut applies decided changes. With a bug, other callers go between the decision and the end.
func (h *handle) carryOut(ops []storage.Op) []*resourcepb.Resource {
	if h.has("check, then act") {
		h.pause()
	}
	if half := len(ops) / 2; half > 0 && h.sometimes("a transaction in two steps", 3) {
		results := h.apply(ops[:half])
		h.pause()
		return append(results, h.apply(ops[half:])...)
	}
	first := len(h.log)
	results := h.apply(ops)
	if h.hidden == nil && h.sometimes("a list shows a later change first", h.rarer(4, 40)) {
		h.hidden = h.log[first:len(h.log):len(h.log)]
		h.pause()
		h.hidden = nil
	}
	return results
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

// pause lets other callers go first.
func (s *store) pause() {
	s.mu.Unlock()
	time.Sleep(2 * time.Millisecond) //nolint:forbidigo // the defect is slow
	s.mu.Lock()
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
			row = h.stored(op.Write, row)
			results[i] = clone(row)
			if row.Metadata[lastMark] == "" && h.sometimes("an acknowledged write is forgotten", 50) {
				continue
			}
			if len(row.GetData().GetValue()) > 0 && h.sometimes("bytes are damaged", 100) {
				row.Data.Value[0]++
			}
			h.rows[key] = row
			h.publish(change{key: key, res: row})
		case op.Delete != nil && row != nil && h.sameUid(row.Id.Uid, op.Delete.Uid) && !h.sometimes("a delete does nothing", 20):
			delete(h.rows, key)
			h.publish(change{key: key, res: row, deleted: true})
			for other, child := range h.rows {
				if h.has("a deletion deletes owned resources") && child.Owner != nil && keyOf(child.Owner) == keyOf(row.Id) {
					delete(h.rows, other)
				}
			}
		}
	}
	for i := range h.log[min(first, len(h.log)):] {
		h.log[first+i].last = len(h.log)
		if !h.has("a commit has several revisions") {
			h.log[first+i].revision = h.log[len(h.log)-1].revision
		}
	}
	h.loseDurability(first)
	if h.compacted > 1 && h.has("a compaction goes back") {
		h.compacted--
	}
	close(h.wake)
	h.wake = make(chan struct{})
	if h.has("results are in another order") {
		slices.Reverse(results)
	}
	return results
}

// stored returns the stored form of a resource that replaces another, or nothing.
func (h *handle) stored(given, before *resourcepb.Resource) *resourcepb.Resource {
	res := clone(given)
	res.Version = h.name[:4] + strconv.Itoa(h.version)
	if h.has("versions count from one") {
		last, _ := strconv.Atoi(given.Version)
		res.Version = strconv.Itoa(last + 1)
	}
	if h.has("input kept") {
		res.Data = given.Data
	}
	if h.has("times to live lost") {
		res.Ttl = nil
	}
	if h.has("unknown fields lost") { // those of the deepest messages only
		for _, status := range res.Status {
			for _, condition := range status.Conditions {
				condition.ProtoReflect().SetUnknown(nil)
			}
		}
	}
	if res.Metadata == nil && h.has("writes merge") {
		res.Metadata = maps.Clone(before.GetMetadata())
	}
	for k, v := range res.Metadata {
		if h.has("metadata lose trailing spaces") {
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
	if h.has("dropped event") && h.version%7 == 6 {
		return
	}
	if c.deleted && h.has("a delete shows the id only") {
		c.res = &resourcepb.Resource{Id: c.res.Id}
	}
	c.revision = h.nextRevision()
	h.log = append(h.log, c)
	switch {
	case h.has("repeated event") && n%7 == 6:
		c.revision = h.nextRevision()
		h.log = append(h.log, c)
	case h.has("events overtake") && n%7 == 6:
		h.log[n-1], h.log[n] = h.log[n], h.log[n-1]
	}
}

// loseDurability makes the log from a position on volatile.
func (s *store) loseDurability(first int) {
	switch {
	case s.volatile < 0 && (s.has("acknowledged before it is durable") || s.has("a crash loses acknowledged writes, and watches report it")):
		s.volatile = first
	case len(s.log)%4096 == 0:
		s.volatile = -1
	}
}

// crash loses everything that is not durable. Only bugs leave any.
func (s *store) crash() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.volatile < 0 {
		return
	}
	s.log, s.volatile = s.log[:min(s.volatile, len(s.log))], -1
	s.compacted = min(s.compacted, s.revisionAt(len(s.log)))
	s.rows = map[string]*resourcepb.Resource{}
	for key, r := range s.past(history.Range{}, s.revision) {
		s.rows[key] = r.Resource
	}
}

// at returns the state of a key after a number of changes, or nil.
func (s *store) at(key string, position int) *resourcepb.Resource {
	for _, c := range slices.Backward(s.log[:max(0, min(position, len(s.log)))]) {
		if c.key == key {
			if c.deleted {
				return nil
			}
			return c.res
		}
	}
	return nil
}

// beforeLastChange returns the state of a key before its last change.
func (s *store) beforeLastChange(key string) *resourcepb.Resource {
	for i, c := range slices.Backward(s.log) {
		if c.key == key {
			return s.at(key, i)
		}
	}
	return nil
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
	case op.Write != nil && (h.landing || row != nil && row.Id.Uid == op.Write.Id.Uid && h.sometimes("a write does not compare", 50)):
		return nil // it replaces any state
	case op.Present && h.has("a deletion ignores that its resource must be present"):
		op.Present = false
		return h.decide(op)
	case op.Present && row == nil:
		return storage.ErrCASFailure
	case op.Delete != nil && !op.Present && row != nil && !h.sameUid(row.Id.Uid, op.Delete.Uid) && h.has("a delete of another uid fails"):
		return storage.ErrWrongUid
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
	case op.Write != nil && len(version) > 4 && strings.Trim(version[4:], "0123456789") != "" && h.has("garbage versions are invalid"):
		return invalid("version %q", version)
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

// lastMark is the metadata of the write that ends a round of package faults, for which bugs make an exception.
const lastMark = "last"

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
