package faults

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
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// server is the database that proves the suite: all changes are in one log under one lock. It is simple, and takes an optional
// defect of defects_test.go, which must be reported.
type server struct {
	defect string
	name   string
	leak   chan struct{} // ends goroutines that a defect leaks

	mu       sync.Mutex
	log      []entry
	rows     map[string]*resourcepb.Resource
	version  int
	wake     chan struct{}
	gone     int         // the log before is forgotten
	volatile int         // the log from here on is lost in a crash; only defects have one
	revision int64       // the newest one
	reserved int64       // the revision before those that a transaction has reserved; used by a defect only
	landing  atomic.Bool // a write that was given up arrives; only a defect has any
	hidden   []entry     // changes that are in the log and that lists do not show yet; only a defect has any
}

// entry is a change in the log.
type entry struct {
	key     string
	res     *resourcepb.Resource
	deleted bool
	last    int // where the log ends after its transaction

	revision int64
}

func newServer(defect string) *server {
	return &server{defect: defect, name: strconv.FormatUint(rand.Uint64(), 36), leak: make(chan struct{}), rows: map[string]*resourcepb.Resource{}, wake: make(chan struct{}), volatile: -1, revision: 1}
}

func (s *server) has(defect string) bool { return s.defect == defect }

// sometimes is true for one call in n, if the server has the defect.
func (s *server) sometimes(defect string, n int) bool {
	return s.has(defect) && rand.IntN(n) == 0
}

func keyOf(id *resourcepb.ID) string { return id.Tenancy.Namespace + "\x00" + id.Name }

// commit is the server's side of a transaction.
func (s *server) commit(ops []storage.Op) (results []*resourcepb.Resource, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sometimes("a revision is returned before it is final", 20) {
		s.reserve(ops)
		defer func() { s.reserved = 0 }()
	}
	for i, op := range ops {
		if err := s.decide(op); err != nil {
			if s.has("half a transaction") && i > 0 {
				s.apply(ops[:i])
			}
			return nil, &storage.OpError{Index: i, Err: err}
		}
	}
	if half := len(ops) / 2; half > 0 && s.sometimes("a transaction in two steps", 3) {
		first := s.apply(ops[:half])
		s.mu.Unlock()
		pause(context.Background(), 2*time.Millisecond)
		s.mu.Lock()
		return append(first, s.apply(ops[half:])...), nil
	}
	first := len(s.log)
	results = s.apply(ops)
	if s.hidden == nil && s.sometimes("a list shows a later change first", 4) {
		s.hidden = s.log[first:len(s.log):len(s.log)]
		s.mu.Unlock()
		pause(context.Background(), 2*time.Millisecond)
		s.mu.Lock()
		s.hidden = nil
	}
	return results, nil
}

func (s *server) decide(op storage.Op) error {
	id, verb, given := op.Write.GetId(), write, state{op.Write.GetId().GetUid(), op.Write.GetVersion()}
	if op.Delete != nil {
		id, verb, given = op.Delete, remove, state{op.Delete.Uid, op.Version}
		if op.Present && !s.has("a deletion ignores that its resource must be present") {
			verb = demand
		}
	} else if op.Check != nil {
		id, verb, given = op.Check, demand, state{op.Check.Uid, op.Version}
	}
	row := s.rows[keyOf(id)]
	if s.landing.Load() && verb == write || s.sometimes("a write does not compare", 50) && verb == write && row != nil && row.Id.Uid == given.uid {
		return nil // it goes over whatever is there
	}
	return refusal(verb, given, state{row.GetId().GetUid(), row.GetVersion()})
}

func (s *server) apply(ops []storage.Op) []*resourcepb.Resource {
	results := make([]*resourcepb.Resource, len(ops))
	first := len(s.log)
	for i, op := range ops {
		switch {
		case op.Write != nil:
			s.version++
			res := proto.CloneOf(op.Write)
			res.Version = fmt.Sprintf("v%d", s.version)
			results[i] = proto.CloneOf(res)
			if res.Metadata[metaLast] == "" && s.sometimes("an acknowledged write is forgotten", 50) {
				continue
			}
			if s.sometimes("bytes are damaged", 100) && len(res.Data.Value) > 0 {
				res.Data.Value[0]++
			}
			s.log = append(s.log, entry{key: keyOf(res.Id), res: res, revision: s.number()})
		case op.Delete != nil:
			if row := s.rows[keyOf(op.Delete)]; row != nil && row.Id.Uid == op.Delete.Uid && !s.sometimes("a delete does nothing", 20) {
				s.log = append(s.log, entry{key: keyOf(op.Delete), res: row, deleted: true, revision: s.number()})
			}
		}
	}
	for i := range s.log[first:] {
		s.log[first+i].last = len(s.log)
		s.replay(s.log[first+i])
	}
	if s.volatile < 0 && (s.has("acknowledged before it is durable") || s.has("a crash loses acknowledged writes, and watches report it")) {
		s.volatile = first
	} else if len(s.log)%4096 == 0 {
		s.volatile = -1
	}
	if s.gone > 1 && s.has("a compaction goes back") {
		s.gone--
	}
	close(s.wake)
	s.wake = make(chan struct{})
	return results
}

func (s *server) replay(c entry) {
	if c.deleted {
		delete(s.rows, c.key)
	} else {
		s.rows[c.key] = c.res
	}
}

// crash loses everything that is not durable.
func (s *server) crash() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.volatile < 0 {
		return
	}
	s.log = s.log[:min(s.volatile, len(s.log))]
	s.volatile, s.gone = -1, min(s.gone, len(s.log))
	s.rows = map[string]*resourcepb.Resource{}
	for _, c := range s.log {
		s.replay(c)
	}
}

// at returns the state of a key after a number of changes.
func (s *server) at(key string, position int) *resourcepb.Resource {
	for i := min(position, len(s.log)) - 1; i >= 0; i-- {
		if c := s.log[i]; c.key == key {
			if c.deleted {
				return nil
			}
			return c.res
		}
	}
	return nil
}

// list returns the stored resources in order.
func (s *server) list(f filter) (all []*resourcepb.Resource) {
	rows := s.rows
	if len(s.hidden) > 0 {
		rows = maps.Clone(rows)
		for _, c := range slices.Backward(s.hidden) {
			if before := s.at(c.key, slices.IndexFunc(s.log, func(e entry) bool { return e.res == c.res && e.deleted == c.deleted })); before != nil {
				rows[c.key] = before
			} else {
				delete(rows, c.key)
			}
		}
	}
	for _, res := range rows {
		if f.matches(res) {
			all = append(all, proto.CloneOf(res))
		}
	}
	slices.SortFunc(all, func(a, b *resourcepb.Resource) int { return cmp.Compare(keyOf(a.Id), keyOf(b.Id)) })
	return all
}

type filter struct{ namespace string }

func (f filter) matches(res *resourcepb.Resource) bool {
	return f.namespace == storage.Wildcard || f.namespace == res.Id.Tenancy.Namespace
}

// wire is the connection between a handle and the server.
type wire struct {
	mu    sync.Mutex
	open  chan struct{} // closed while requests and answers pass
	cuts  int           // so often it broke
	loses int           // so many answers will be lost
}

func newWire() *wire {
	w := &wire{open: make(chan struct{})}
	close(w.open)
	return w
}

func (w *wire) stall() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open = make(chan struct{})
}

func (w *wire) resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.open:
	default:
		close(w.open)
	}
}

func (w *wire) cut(answers int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cuts++
	w.loses = answers
}

func (w *wire) state() (open <-chan struct{}, cuts int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open, w.cuts
}

// pass waits until something can pass, and reports whether it does.
func (w *wire) pass(ctx context.Context) bool {
	open, _ := w.state()
	select {
	case <-open:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

func (w *wire) loseAnswer() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.loses > 0 {
		w.loses--
		return true
	}
	return false
}

// handle is a client of the server.
type handle struct {
	*server
	wire *wire
	open struct {
		sync.Mutex
		watches []*watch
		pages   map[string][]*resourcepb.Resource
	}
}

func late(ctx context.Context) error { return fmt.Errorf("%w: %w", storage.ErrInconsistent, ctx.Err()) }

// exchange carries out a request on the server once and returns the answer. If the answer is lost, it is requested again.
func (h *handle) exchange(ctx context.Context, do func()) error {
	if h.sometimes("a late call", 100) {
		pause(context.WithoutCancel(ctx), 2*time.Second)
	}
	if _, bounded := ctx.Deadline(); bounded && h.sometimes("an early end", 100) {
		return context.DeadlineExceeded
	}
	if h.sometimes("an outcome is unknown without a fault", 100) {
		return fmt.Errorf("%w: just so", storage.ErrInconsistent)
	}
	if !h.wire.pass(ctx) {
		return ctx.Err()
	}
	pause(ctx, time.Duration(rand.IntN(300))*time.Microsecond)
	do()
	pause(ctx, time.Duration(rand.IntN(300))*time.Microsecond)
	for {
		if h.wire.loseAnswer() {
			if h.has("a lost answer is forgotten") {
				do()
				return nil
			}
			if h.has("a visible write counts as durable") {
				h.mu.Lock()
				h.volatile = len(h.log) - 1
				h.mu.Unlock()
				return nil
			}
			h.wire.pass(ctx)
			continue
		}
		if h.wire.pass(ctx) {
			return nil
		}
		if h.has("a cancel in the commit") {
			return ctx.Err()
		}
		return late(ctx)
	}
}

func (h *handle) Read(ctx context.Context, c storage.ReadConsistency, id *resourcepb.ID) (res *resourcepb.Resource, err error) {
	err = h.exchange(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		res = h.rows[keyOf(id)]
		if c == storage.StrongConsistency && h.sometimes("a stale member", 50) || c == storage.EventualConsistency && h.sometimes("eventual reads go back", 50) {
			res = h.at(keyOf(id), len(h.log)-40)
		}
		res = proto.CloneOf(res)
	})
	if err == nil && res == nil {
		err = storage.ErrNotFound
	}
	return res, err
}

func (h *handle) Commit(ctx context.Context, ops []storage.Op) (results []*resourcepb.Resource, err error) {
	var refused error
	err = h.exchange(ctx, func() { results, refused = h.commit(ops) })
	if err != nil && !errors.Is(err, storage.ErrInconsistent) && h.has("an abandoned write is applied later") {
		go func() { // an abandoned write arrives nevertheless
			h.wire.pass(context.Background())
			h.landing.Store(true)
			_, _ = h.commit(ops)
			h.landing.Store(false)
		}()
	}
	return results, cmp.Or(err, refused)
}

func (h *handle) MaxOps() int { return 32 }

func alone(err error) error {
	var op *storage.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

func (h *handle) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	results, err := h.Commit(ctx, []storage.Op{{Write: res}})
	if err != nil {
		return nil, alone(err)
	}
	return results[0], nil
}

func (h *handle) DeleteCAS(ctx context.Context, id *resourcepb.ID, version string) error {
	_, err := h.Commit(ctx, []storage.Op{{Delete: id, Version: version}})
	return alone(err)
}

// List is made of pages, as some adapters' are.
func (h *handle) List(ctx context.Context, c storage.ReadConsistency, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) (all []*resourcepb.Resource, err error) {
	opts := storage.ListOptions{Consistency: c, Limit: 3}
	for {
		page, err := h.ListPage(ctx, typ, tenancy, prefix, opts)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Resources...)
		if opts.Continue = page.Continue; page.Continue == "" || len(page.Resources) == 0 && h.has("an empty page is the last") {
			return all, nil
		}
	}
}

// ListPage keeps the rest of a listing. Some pages are empty.
func (h *handle) ListPage(ctx context.Context, _ storage.UnversionedType, tenancy *resourcepb.Tenancy, _ string, opts storage.ListOptions) (page storage.Page, err error) {
	err = h.exchange(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		token, cursor, _ := strings.Cut(opts.Continue, " ")
		h.open.Lock()
		rest := h.open.pages[token]
		h.open.Unlock()
		if opts.Continue == "" {
			rest, cursor = h.list(filter{tenancy.Namespace}), h.cursor(len(h.log))
		}
		if h.has("pages by rows") && opts.Continue != "" {
			rest = h.list(filter{tenancy.Namespace})
			from, _ := strconv.Atoi(token)
			rest = rest[min(from, len(rest)):]
		}
		n := min(opts.Limit, len(rest))
		if rand.IntN(5) == 0 {
			n = 0
		}
		page.Resources, rest, page.Cursor = rest[:n], rest[n:], cursor
		if len(rest) == 0 {
			return
		}
		next := fmt.Sprintf("t%d", rand.Uint64())
		if h.has("pages by rows") {
			from, _ := strconv.Atoi(token)
			next = strconv.Itoa(from + n)
		}
		h.open.Lock()
		h.open.pages[next] = rest
		h.open.Unlock()
		page.Continue = next + " " + cursor
	})
	return page, err
}

func (h *handle) OwnerReferences(ctx context.Context, id *resourcepb.ID) (ids []*resourcepb.ID, err error) {
	err = h.exchange(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, res := range h.list(filter{id.Tenancy.Namespace}) {
			if ownerOf(res.Owner) == ownerOf(id) || h.has("a reference stays when the owner changes") && h.owned(keyOf(res.Id), id) {
				ids = append(ids, res.Id)
			}
		}
		if len(ids) > 0 && h.sometimes("a reference is missing", 20) {
			ids = ids[1:]
		}
	})
	return ids, err
}

// owned reports whether one of the last changes of a key named an owner.
func (h *handle) owned(key string, owner *resourcepb.ID) bool {
	for _, c := range h.log[max(0, len(h.log)-100):] {
		if c.key == key && !c.deleted && ownerOf(c.res.Owner) == ownerOf(owner) {
			return true
		}
	}
	return false
}

func (h *handle) Close() error {
	h.open.Lock()
	defer h.open.Unlock()
	for _, w := range h.open.watches {
		w.Close()
	}
	return nil
}
