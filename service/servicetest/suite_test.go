package servicetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/reaper"
	"github.com/ashlar-dev/storage/service/registry"
)

// suite is the environment of a case: an empty store, a server over it, and helpers that end the case on a failure.
type suite struct {
	testing.TB
	h     *Harness
	ctx   context.Context // ends some time after the case should have ended
	store storage.Backend // the store itself, without the server's faults
	world *world
	Client
}

const strong = storage.StrongConsistency

// silent discards the errors that a case causes.
var silent = slog.New(slog.DiscardHandler)

// anywhere is every tenancy, and everything every type.
var (
	anywhere   = &resourcepb.Tenancy{Partition: storage.Wildcard, Namespace: storage.Wildcard}
	everything = storage.UnversionedType{Group: storage.Wildcard, Kind: storage.Wildcard}
	tombstones = storage.UnversionedTypeFrom(service.TombstoneType)
)

func (h *Harness) suite(t testing.TB) *suite {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*h.Timeout)
	s := &suite{TB: t, h: h, ctx: ctx, store: h.open(t), world: &world{}}
	t.Cleanup(func() {
		cancel()
		if err := s.store.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	s.Client = s.client(s.server(s.world, s.store))
	return s
}

// server returns a server of the suite's types over a backend.
func (s *suite) server(w *world, b storage.Backend) *service.Server {
	s.Helper()
	types, err := registry.New(through(w.types(), s.h.fault.types)...)
	if err != nil {
		s.Fatal(err)
	}
	return s.serverOf(types, w, b)
}

// serverOf returns a server of the given types over a backend.
func (s *suite) serverOf(types *registry.Registry, w *world, b storage.Backend) *service.Server {
	o := w.options()
	if s.h.fault.options != nil {
		s.h.fault.options(o)
	}
	return service.New(through(b, s.h.fault.backend), types, o)
}

// client returns a client of a server over the harness's transport.
func (s *suite) client(server *service.Server) Client {
	s.Helper()
	c := s.h.Transport(s.TB, server)
	if s.h.fault.client != nil {
		c = s.h.fault.client(c, s.store)
	}
	return guarded(s.TB, c)
}

// reap runs a reaper over a backend until the case ends.
func (s *suite) reap(b storage.Backend) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.ctx)
	ended := make(chan error, 1)
	r := reaper.New(s.server(&world{}, through(b, s.h.fault.reaped)), &reaper.Options{Settle: time.Millisecond, Workers: 4, Logger: silent})
	go func() { ended <- r.Run(ctx) }()
	s.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
			s.Errorf("the reaper ended with %v", err)
		}
	})
}

// scale returns n, or less if writes are slow.
func (s *suite) scale(n int) int {
	if s.h.Slow {
		return max(1, n/4)
	}
	return n
}

// as returns a context for calls with a token.
func (s *suite) as(token string) context.Context { return withToken(s.ctx, token) }

func withToken(ctx context.Context, token string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "x-consul-token", token)
}

// eventually polls until check returns nil.
func (s *suite) eventually(what string, check func() error) {
	s.Helper()
	limit := time.NewTimer(s.h.Timeout)
	defer limit.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-limit.C:
			s.Fatalf("%s: not so after %v: %v", what, s.h.Timeout, err)
		}
	}
}

// parallel runs f n times concurrently and ends the case with the errors.
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

// succeeds checks that there is no error.
func (s *suite) succeeds(what string, err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("%s: %v", what, err)
	}
}

// fails checks that an error has a code and a text that matches a regular expression.
func (s *suite) fails(what string, err error, code codes.Code, wantText string) {
	s.Helper()
	if wrong := mismatch(err, code, wantText); wrong != "" {
		s.Fatalf("%s: %s", what, wrong)
	}
}

// mismatch describes how an error differs from a code and a text that matches a regular expression; "" if it does not.
func mismatch(err error, code codes.Code, wantText string) string {
	st, ok := status.FromError(err)
	switch {
	case err == nil:
		return fmt.Sprintf("no error, expected %v", code)
	case !ok || st.Code() != code:
		return fmt.Sprintf("got error %q, expected %v", err, code)
	case !regexp.MustCompile(wantText).MatchString(st.Message()):
		return fmt.Sprintf("got the text %q, expected one that matches %q", st.Message(), wantText)
	}
	return ""
}

// exactly returns a regular expression for one text.
func exactly(text string) string { return "^" + regexp.QuoteMeta(text) + "$" }

// same checks that two messages are equal.
func (s *suite) same(what string, got, want proto.Message) {
	s.Helper()
	if !proto.Equal(got, want) {
		s.Fatalf("%s:\n got %s\nwant %s", what, text(got), text(want))
	}
}

// text formats a message, shortened.
func text(m proto.Message) string {
	line := prototext.MarshalOptions{}.Format(m)
	if len(line) > 600 {
		line = line[:600] + "…"
	}
	return line
}

func clone[M proto.Message](m M) M { return proto.CloneOf(m) }
