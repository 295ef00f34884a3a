package conformance

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// A suite is what a case works with: a fresh store, and shorthands that end the case when something is wrong.
type suite struct {
	testing.TB
	h   *Harness
	ctx context.Context // ends some time after the case should have
	b   storage.Backend
	url string // of the store, where the harness has one
}

const strong, eventual = storage.StrongConsistency, storage.EventualConsistency

var consistencies = []storage.ReadConsistency{strong, eventual}

func (h *Harness) suite(t testing.TB) *suite {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), h.caseTime())
	t.Cleanup(cancel)
	s := &suite{TB: t, h: h, ctx: ctx}
	s.open()
	return s
}

// open gives s a fresh store.
func (s *suite) open() {
	s.Helper()
	if s.h.URL == nil {
		s.b = s.h.Open(s.TB)
		s.closeLater(s.b)
		return
	}
	s.url = s.h.URL(s.TB)
	s.b = s.another()
}

// another opens one more handle on the store.
func (s *suite) another() storage.Backend {
	s.Helper()
	var b storage.Backend
	if s.h.URL == nil {
		b = s.h.Another(s.TB, s.b)
	} else {
		var err error
		if b, err = storage.Open(s.ctx, s.url); err != nil {
			s.Fatalf("opening a store: %v", err)
		}
	}
	s.closeLater(b)
	return b
}

func (s *suite) closeLater(b storage.Backend) {
	s.Cleanup(func() {
		if err := b.Close(); err != nil {
			s.Errorf("Close: %v", err)
		}
	})
}

// scale is n, or less where writes are slow.
func (s *suite) scale(n int) int {
	if s.h.Slow {
		return max(1, n/4)
	}
	return n
}

// patience is a context that ends when something that should have happened did not.
func (s *suite) patience() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.ctx, s.h.Timeout)
}

// within fails the case if f does not return in time.
func (s *suite) within(what string, f func()) {
	s.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	s.await(what, done)
}

func (s *suite) await(what string, done <-chan struct{}) {
	s.Helper()
	timer := time.NewTimer(s.h.Timeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		s.Fatalf("%s: still waiting after %v", what, s.h.Timeout)
	}
}

// eventually polls until check finds nothing wrong, for what promises to become true at some time.
func (s *suite) eventually(what string, check func() error) {
	s.Helper()
	if err := s.poll(check); err != nil {
		s.Fatalf("%s: not so after %v: %v", what, s.h.Timeout, err)
	}
}

// poll is eventually for those who may not end the case: it returns what is still wrong in the end.
func (s *suite) poll(check func() error) error {
	ctx, cancel := s.patience()
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

// parallel runs f n times at once and ends the case with the first error.
func (s *suite) parallel(n int, f func(i int) error) {
	s.Helper()
	errs := make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { errs[i] = f(i) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		s.Fatal(err)
	}
}

// The type and tenancy that cases use where none matters.
var (
	thing    = &resourcepb.Type{Group: "conformance", GroupVersion: "v1", Kind: "Thing"}
	things   = storage.UnversionedTypeFrom(thing)
	anywhere = &resourcepb.Tenancy{Partition: storage.Wildcard, Namespace: storage.Wildcard}
	home     = &resourcepb.Tenancy{Partition: "default", Namespace: "default"}
	anything = storage.UnversionedType{Group: storage.Wildcard, Kind: storage.Wildcard}
)

func newUid() string { return "uid-" + rand.Text() }

// thingID is the id of a Thing at home, with a new uid.
func thingID(name string) *resourcepb.ID {
	return &resourcepb.ID{Uid: newUid(), Name: name, Type: clone(thing), Tenancy: clone(home)}
}

// newThing is a resource that no store has seen.
func newThing(name string) *resourcepb.Resource { return newResource(thingID(name)) }

func newResource(id *resourcepb.ID) *resourcepb.Resource {
	return &resourcepb.Resource{Id: id, Generation: "1", Metadata: map[string]string{"made-by": "conformance"}, Data: payload("new")}
}

func payload(text string) *anypb.Any {
	data, err := anypb.New(wrapperspb.String(text))
	if err != nil {
		panic(err) // a string always encodes
	}
	return data
}

// changed is res with another payload, as a caller would write it next.
func changed(res *resourcepb.Resource) *resourcepb.Resource {
	next := clone(res)
	next.Data = payload(rand.Text())
	return next
}

func clone[M proto.Message](m M) M { return proto.CloneOf(m) }

// withUid is id with another uid.
func withUid(id *resourcepb.ID, uid string) *resourcepb.ID {
	other := clone(id)
	other.Uid = uid
	return other
}

// keyOf names the key of an id; different keys have different names.
func keyOf(id *resourcepb.ID) string {
	t, ten := id.GetType(), id.GetTenancy()
	return t.GetGroup() + "\x00" + t.GetKind() + "\x00" + ten.GetPartition() + "\x00" + ten.GetNamespace() + "\x00" + id.GetName()
}

// write stores res, which must succeed.
func (s *suite) write(res *resourcepb.Resource) *resourcepb.Resource {
	s.Helper()
	stored, err := s.b.WriteCAS(s.ctx, res)
	if err != nil {
		s.Fatalf("WriteCAS(%v): %v", res.GetId(), err)
	}
	if stored.GetVersion() == "" {
		s.Fatalf("WriteCAS(%v) returned no version", res.GetId())
	}
	return stored
}

// create stores a new Thing.
func (s *suite) create(name string) *resourcepb.Resource {
	s.Helper()
	return s.write(newThing(name))
}

// update changes a stored resource.
func (s *suite) update(stored *resourcepb.Resource) *resourcepb.Resource {
	s.Helper()
	return s.write(changed(stored))
}

// delete removes a stored resource.
func (s *suite) delete(stored *resourcepb.Resource) {
	s.Helper()
	if err := s.b.DeleteCAS(s.ctx, stored.Id, stored.Version); err != nil {
		s.Fatalf("DeleteCAS(%v, %q): %v", stored.Id, stored.Version, err)
	}
}

// read reads strongly.
func (s *suite) read(id *resourcepb.ID) *resourcepb.Resource {
	s.Helper()
	res, err := s.b.Read(s.ctx, strong, id)
	if err != nil {
		s.Fatalf("Read(%v): %v", id, err)
	}
	return res
}

// stored demands that the store holds exactly want under its key.
func (s *suite) stored(want *resourcepb.Resource) {
	s.Helper()
	s.same("Read", s.read(want.Id), want)
}

// absent demands that the store holds nothing under id's key.
func (s *suite) absent(id *resourcepb.ID) {
	s.Helper()
	_, err := s.b.Read(s.ctx, strong, withUid(id, ""))
	s.fails("Read of what should not be there", err, storage.ErrNotFound)
}

// fails demands an error that matches want.
func (s *suite) fails(what string, err, want error) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Fatalf("%s: got error %v, want %q", what, quoted(err), want)
	}
}

// succeeds demands that there is no error.
func (s *suite) succeeds(what string, err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("%s: %v", what, err)
	}
}

func quoted(err error) string {
	if err == nil {
		return "none"
	}
	return fmt.Sprintf("%q", err)
}

// same demands two equal messages.
func (s *suite) same(what string, got, want proto.Message) {
	s.Helper()
	if !proto.Equal(got, want) {
		s.Fatalf("%s:\n got %s\nwant %s", what, text(got), text(want))
	}
}

// sameList demands equal resources in equal order.
func (s *suite) sameList(what string, got, want []*resourcepb.Resource) {
	s.Helper()
	if err := compareLists(got, want); err != nil {
		s.Fatalf("%s: %v", what, err)
	}
}

func compareLists(got, want []*resourcepb.Resource) error {
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			return fmt.Errorf("%d resources instead of %d: missing %s", len(got), len(want), text(want[i]))
		case i >= len(want):
			return fmt.Errorf("%d resources instead of %d: too many is %s", len(got), len(want), text(got[i]))
		case !proto.Equal(got[i], want[i]):
			return fmt.Errorf("resource %d of %d:\n got %s\nwant %s", i, len(want), text(got[i]), text(want[i]))
		}
	}
	return nil
}

// text shows a message, shortened.
func text(m proto.Message) string {
	line := prototext.MarshalOptions{}.Format(m)
	if len(line) > 600 {
		line = line[:600] + "…"
	}
	return line
}

// sizeOf is the size that counts: that of the message without its version.
func sizeOf(res *resourcepb.Resource) int {
	bare := clone(res)
	bare.Version = ""
	return proto.Size(bare)
}
