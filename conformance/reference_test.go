package conformance

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// A store is the reference that the suite is proven against: every change in one slice under one lock, and whatever is asked
// is worked out from it. It is slow and forgets nothing, so that it is easy to see that it is right, unless it is told to have
// one of the bugs of broken_test.go. Those that a wrapper around a handle cannot have are here: each a test of has.
type store struct {
	name    string
	bug     string
	leak    chan struct{} // ends the goroutines that a bug leaks
	mu      sync.Mutex
	rows    map[string]*resourcepb.Resource
	log     []change
	wake    chan struct{} // closed and replaced at each change
	version int
	lists   map[string][]*resourcepb.Resource // by continue token: what is left
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
	closed chan struct{}
	once   sync.Once
}

func (s *store) open() *handle { return &handle{store: s, closed: make(chan struct{})} }

func (h *handle) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

// ended tells waiting watches that the backend was closed.
func (h *handle) ended() <-chan struct{} {
	if h.has("watches outlive their backend") {
		return nil
	}
	return h.closed
}

// enter is what every call begins with.
func (h *handle) enter(ctx context.Context, problems ...error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-h.closed:
		return storage.ErrClosed
	default:
		return errors.Join(problems...)
	}
}

func (h *handle) Read(ctx context.Context, c storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	if err := h.enter(ctx, checkConsistency(c), checkID("id", id, false)); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	row := h.rows[h.key(id)]
	switch {
	case row == nil || id.Uid != "" && id.Uid != row.Id.Uid:
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
		return invalid("id is nil")
	}
	_, err := h.commit(ctx, []storage.Op{{Delete: id, Version: version}})
	return alone(err)
}

func (h *handle) MaxOps() int { return 64 }

func (h *handle) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	if len(ops) == 0 {
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
	if err := h.enter(ctx, checkOps(ops, h.MaxOps())); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
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

// pause lets everybody else do something.
func (h *handle) pause() {
	h.mu.Unlock()
	for range 20 {
		runtime.Gosched()
	}
	h.mu.Lock()
}

// apply does what was decided.
func (h *handle) apply(ops []storage.Op) []*resourcepb.Resource {
	results := make([]*resourcepb.Resource, len(ops))
	first := len(h.log)
	for i, op := range ops {
		key := h.key(opID(op))
		switch row := h.rows[key]; {
		case op.Write != nil:
			h.version++
			row = clone(op.Write)
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
		case op.Delete != nil && row != nil && row.Id.Uid == op.Delete.Uid:
			delete(h.rows, key)
			h.publish(change{res: row, deleted: true})
		}
	}
	for i := range h.log[min(first, len(h.log)):] {
		h.log[first+i].last = len(h.log)
	}
	close(h.wake)
	h.wake = make(chan struct{})
	return results
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
	return keyOf(id)
}

// decide is the decision tables.
func (h *handle) decide(op storage.Op) error {
	row := h.rows[h.key(opID(op))]
	uid, version := op.Check.GetUid(), op.Version
	switch {
	case op.Delete != nil && (row == nil || row.Id.Uid != op.Delete.Uid):
		return nil
	case op.Check != nil && version == "":
		if row != nil && uid != "" && uid != row.Id.Uid {
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
	case uid != row.Id.Uid && uid != "":
		return storage.ErrWrongUid
	case version != row.Version:
		return storage.ErrCASFailure
	}
	return nil
}

func (h *handle) List(ctx context.Context, c storage.ReadConsistency, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) ([]*resourcepb.Resource, error) {
	if err := h.enter(ctx, checkConsistency(c), checkFilter(typ, tenancy, prefix)); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.matching(filter{typ, tenancy, prefix}), nil
}

// matching is called with the lock held.
func (h *handle) matching(f filter) []*resourcepb.Resource {
	var all []*resourcepb.Resource
	for _, row := range h.rows {
		all = append(all, row)
	}
	var found []*resourcepb.Resource
	for _, row := range f.of(all) {
		found = append(found, clone(row))
	}
	if h.has("sorted by locale") {
		slices.SortStableFunc(found, func(a, b *resourcepb.Resource) int {
			return strings.Compare(strings.ToLower(keyOf(a.Id)), strings.ToLower(keyOf(b.Id)))
		})
	}
	return found
}

func (h *handle) ListPage(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string, opts storage.ListOptions) (storage.Page, error) {
	if err := h.enter(ctx, checkConsistency(opts.Consistency), checkFilter(typ, tenancy, prefix)); err != nil {
		return storage.Page{}, err
	}
	if opts.Limit < 0 {
		return storage.Page{}, invalid("limit %d", opts.Limit)
	}
	limit := cmp.Or(opts.Limit, 10)
	h.mu.Lock()
	defer h.mu.Unlock()
	f := filter{typ, tenancy, prefix}
	token := pageToken{Filter: f.String(), Cursor: h.cursor(len(h.log))}
	rest := h.matching(f)
	if opts.Continue != "" {
		token = pageToken{}
		if json.Unmarshal([]byte(opts.Continue), &token) != nil || token.Filter != f.String() && !h.has("a token goes with any filter") || h.lists[opts.Continue] == nil {
			return storage.Page{}, invalid("continue token %q", opts.Continue)
		}
		rest = h.lists[opts.Continue]
		if h.has("pages skip one") {
			rest = rest[min(1, len(rest)):]
		}
	}
	page := storage.Page{Cursor: token.Cursor}
	for _, res := range rest[:min(limit, len(rest))] {
		page.Resources = append(page.Resources, clone(res))
	}
	if len(rest) > limit {
		token.List = rand.Text()
		text, err := json.Marshal(token)
		if err != nil {
			return storage.Page{}, err
		}
		page.Continue = string(text)
		h.lists[page.Continue] = rest[limit:]
	}
	return page, nil
}

type pageToken struct{ Filter, Cursor, List string }

func (h *handle) OwnerReferences(ctx context.Context, id *resourcepb.ID) ([]*resourcepb.ID, error) {
	if err := h.enter(ctx, checkID("id", id, true)); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var children []*resourcepb.ID
	for _, row := range h.matching(newFilter("*", "*", "*", "*", "")) {
		if row.Owner != nil && keyOf(row.Owner) == keyOf(id) && (row.Owner.Uid == id.Uid || h.has("owners by key only")) {
			children = append(children, row.Id)
		}
	}
	return children, nil
}

// A cursor carries a sum, so that a damaged one is not taken for another store's.
func (h *handle) cursor(position int) string { return sealed(h.name + ":" + strconv.Itoa(position)) }

func sealed(text string) string {
	return fmt.Sprintf("%s:%08x", text, crc32.ChecksumIEEE([]byte(text)))
}

func (h *handle) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) (storage.Watch, error) {
	if err := h.enter(ctx, checkFilter(typ, tenancy, prefix)); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	f := filter{typ, tenancy, prefix}
	w := h.newWatch(f, len(h.log))
	if h.has("snapshot after the position") {
		h.pause()
	}
	if h.has("a watch ends with its context") {
		w.bound = ctx
	}
	if h.has("leaked goroutine") {
		go func() { <-h.leak }()
	}
	for _, res := range h.matching(f) {
		w.snapshot = append(w.snapshot, upserted(res))
	}
	if h.has("snapshot before the position") {
		h.pause()
		w.position = len(h.log)
	}
	if h.has("no end of an empty snapshot") && len(w.snapshot) == 0 {
		return w, nil
	}
	w.snapshot = append(w.snapshot, &resourcepb.WatchEvent{Event: &resourcepb.WatchEvent_EndOfSnapshot_{EndOfSnapshot: &resourcepb.WatchEvent_EndOfSnapshot{}}})
	return w, nil
}

func (h *handle) WatchFrom(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix, cursor string) (storage.Watch, error) {
	if err := h.enter(ctx, checkFilter(typ, tenancy, prefix)); err != nil {
		return nil, err
	}
	parts := strings.Split(cursor, ":")
	if len(parts) != 3 || sealed(parts[0]+":"+parts[1]) != cursor {
		return nil, invalid("cursor %q", cursor)
	}
	position, err := strconv.Atoi(parts[1])
	if err != nil && h.has("a cursor inside a snapshot") {
		return h.newWatch(filter{typ, tenancy, prefix}, 0), nil
	}
	if err != nil {
		return nil, invalid("cursor %q from inside a snapshot", cursor)
	}
	if parts[0] != h.name && !h.has("another store's cursor") {
		return nil, storage.ErrCompacted
	}
	return h.newWatch(filter{typ, tenancy, prefix}, position), nil
}

func (h *handle) newWatch(f filter, position int) *watch {
	f.tenancy = clone(f.tenancy)
	return &watch{h: h, filter: f, position: position, closed: make(chan struct{})}
}

type watch struct {
	h        *handle
	filter   filter
	snapshot []*resourcepb.WatchEvent
	position int // in the log
	closed   chan struct{}
	once     sync.Once
	err      error
	bound    context.Context // what a bug lets the watch end with
}

func (w *watch) Close() { w.end(storage.ErrWatchClosed) }

// end notes why the watch ended. Only the first reason counts.
func (w *watch) end(err error) error {
	w.once.Do(func() {
		select {
		case <-w.h.closed:
			err = fmt.Errorf("%w: %w", storage.ErrWatchClosed, storage.ErrClosed)
		default:
		}
		w.err = err
		close(w.closed)
	})
	<-w.closed
	return w.err
}

func (w *watch) Cursor() string {
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	if len(w.snapshot) > 0 {
		return sealed(w.h.name + ":snapshot")
	}
	switch {
	case w.h.has("a cursor one too early") && w.position > 0:
		return w.h.cursor(w.position - 1)
	case w.h.has("one cursor for a transaction") && w.position > 0:
		return w.h.cursor(w.h.log[w.position-1].last)
	}
	return w.h.cursor(w.position)
}

func (w *watch) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	for {
		var ev *resourcepb.WatchEvent
		var wake <-chan struct{}
		if w.h.has("a closed watch goes on") || w.h.has("a cancelled Next consumes") && ctx.Err() != nil {
			ev, wake = w.take()
		}
		select {
		case <-w.closed:
			if ev != nil && w.h.has("a closed watch goes on") {
				return ev, nil
			}
			return nil, w.err
		case <-w.h.closed:
			if w.h.has("watches outlive their backend") {
				break
			}
			return nil, w.end(nil)
		default:
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if w.bound != nil && w.bound.Err() != nil {
			return nil, w.end(storage.ErrWatchClosed)
		}
		if w.h.has("slow watches end") && len(w.h.log)-w.position > 64 {
			return nil, w.end(storage.ErrWatchClosed)
		}
		if ev == nil {
			ev, wake = w.take()
		}
		if ev != nil {
			return ev, nil
		}
		select {
		case <-wake:
		case <-w.closed:
		case <-w.h.ended():
		case <-ctx.Done():
		}
	}
}

// take returns the next event, or what tells of it.
func (w *watch) take() (*resourcepb.WatchEvent, <-chan struct{}) {
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	if len(w.snapshot) > 0 {
		ev := w.snapshot[0]
		w.snapshot = w.snapshot[1:]
		return ev, nil
	}
	for w.position < len(w.h.log) {
		c := w.h.log[w.position]
		w.position++
		switch {
		case !w.filter.selects(c.res.Id):
		case c.deleted:
			return deleted(clone(c.res)), nil
		case w.h.has("events share a resource"):
			return upserted(c.res), nil
		default:
			return upserted(clone(c.res)), nil
		}
	}
	return nil, w.h.wake
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{storage.ErrInvalid}, args...)...)
}

func checkConsistency(c storage.ReadConsistency) error {
	if c != eventual && c != strong {
		return invalid("consistency %v", c)
	}
	return nil
}

func checkPart(field, text string, empty bool) error {
	if !utf8.ValidString(text) || strings.Contains(text, "\x00") || len(text) > 255 || text == "" && !empty || text == storage.Wildcard {
		return invalid("%s %q", field, text)
	}
	return nil
}

func checkID(field string, id *resourcepb.ID, uid bool) error {
	if id == nil || id.Type == nil || id.Tenancy == nil {
		return invalid("%s, its type or its tenancy is nil", field)
	}
	if !utf8.ValidString(id.Type.GroupVersion) {
		return invalid("%s's group version", field)
	}
	return errors.Join(checkPart("group", id.Type.Group, false), checkPart("kind", id.Type.Kind, false),
		checkPart("partition", id.Tenancy.Partition, true), checkPart("namespace", id.Tenancy.Namespace, true),
		checkPart("name", id.Name, false), checkPart("uid", id.Uid, !uid))
}

func checkFilter(typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) error {
	if tenancy == nil || typ.Group == storage.Wildcard && typ.Kind != storage.Wildcard {
		return invalid("tenancy or type")
	}
	var problems []error
	for field, text := range map[string]string{"group": typ.Group, "kind": typ.Kind, "partition": tenancy.Partition, "namespace": tenancy.Namespace} {
		if text != storage.Wildcard {
			problems = append(problems, checkPart(field, text, field == "partition" || field == "namespace"))
		}
	}
	if prefix != storage.Wildcard {
		problems = append(problems, checkPart("prefix", prefix, true))
	}
	return errors.Join(problems...)
}

func checkOps(ops []storage.Op, most int) error {
	if len(ops) > most {
		return fmt.Errorf("%w: %d operations, at most %d", storage.ErrTooLarge, len(ops), most)
	}
	total := 0
	var keys []string
	for i, op := range ops {
		var err error
		switch {
		case op.Write != nil && op.Delete == nil && op.Check == nil && op.Version == "":
			res := op.Write
			err = checkID("id", res.Id, true)
			if res.Owner != nil {
				if bad := checkID("owner", res.Owner, true); bad != nil {
					err = fmt.Errorf("owner: %w", bad)
				}
			}
			if _, bad := proto.Marshal(res); bad != nil {
				err = errors.Join(err, invalid("text: %v", bad))
			}
			bare := clone(res)
			bare.Version = ""
			size := proto.Size(bare)
			if total += size; err == nil && size > 1<<20 {
				err = fmt.Errorf("%w: %d bytes, at most %d", storage.ErrTooLarge, size, 1<<20)
			}
		case op.Delete != nil && op.Write == nil && op.Check == nil:
			err = checkID("id", op.Delete, false)
		case op.Check != nil && op.Write == nil && op.Delete == nil:
			err = checkID("id", op.Check, op.Version != "")
		default:
			err = invalid("an operation is one of Write, Delete and Check")
		}
		if err != nil {
			return &storage.OpError{Index: i, Err: err}
		}
		if slices.Contains(keys, keyOf(opID(op))) {
			return &storage.OpError{Index: i, Err: invalid("a second operation on one key")}
		}
		keys = append(keys, keyOf(opID(op)))
	}
	if total > 1<<20 {
		return fmt.Errorf("%w: %d bytes together, at most %d", storage.ErrTooLarge, total, 1<<20)
	}
	return nil
}
