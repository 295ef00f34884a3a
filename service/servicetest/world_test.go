package servicetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// The types of the suite: one with two versions, whose payloads differ, one of each other scope, and one whose resources name their
// readers. unregistered is not registered by any server of the suite.
var (
	thing        = &resourcepb.Type{Group: "servicetest", GroupVersion: "v1", Kind: "Thing"}
	thing2       = &resourcepb.Type{Group: "servicetest", GroupVersion: "v2", Kind: "Thing"}
	site         = &resourcepb.Type{Group: "servicetest", GroupVersion: "v1", Kind: "Site"}
	planet       = &resourcepb.Type{Group: "servicetest", GroupVersion: "v1", Kind: "Planet"}
	secret       = &resourcepb.Type{Group: "servicetest", GroupVersion: "v1", Kind: "Secret"}
	unregistered = &resourcepb.Type{Group: "servicetest", GroupVersion: "v1", Kind: "Ghost"}
)

// The tokens of the suite. Without a token everything is allowed.
const (
	reader    = "reader"    // may read, list and watch
	nobody    = "nobody"    // may do nothing
	undecided = "undecided" // hooks cannot decide for it
	stranger  = "stranger"  // is unknown
	stuck     = "stuck"     // blocks in authentication
	unsettled = "unsettled" // fails authentication with an internal error
)

// The existing units of tenancies, besides the default ones, and a missing one.
const (
	east    = "east"    // a namespace and a partition
	leaving = "leaving" // both too, marked for deletion
	missing = "missing" // neither
)

// readableBy is the key of a secret's metadata with the token that may read it. Callers without a token may read all.
const readableBy = "readable-by"

// The payloads of a thing that its hooks handle.
const (
	incomplete = "incomplete" // Mutate makes it complete
	complete   = "complete"
	broken     = "broken"  // Mutate fails
	meddled    = "meddled" // Mutate changes a field that it must not change
	refused    = "refused" // Validate rejects it
)

// world has the types, callers and tenancies of a server of the suite, and a log of the hooks called. Its fields do not change after the
// server has started.
type world struct {
	strict bool // Validate rejects every thing

	mu  sync.Mutex
	log []string
}

// calls returns the hooks called since the last call.
func (w *world) calls() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	log := w.log
	w.log = nil
	return log
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

func (w *world) types() []registry.Type {
	return []registry.Type{
		{
			Type: thing, Proto: &wrapperspb.StringValue{}, Scope: registry.ScopeNamespace,
			Mutate: registry.Decoded(w.mutate), Validate: registry.Decoded(w.validate),
			MayRead: w.mayRead, MayWrite: w.mayWrite, MayList: w.mayList,
		},
		{Type: thing2, Proto: &wrapperspb.BytesValue{}, Scope: registry.ScopeNamespace},
		{Type: site, Proto: &wrapperspb.StringValue{}, Scope: registry.ScopePartition},
		{Type: planet, Proto: &wrapperspb.StringValue{}, Scope: registry.ScopeCluster},
		{Type: secret, Proto: &wrapperspb.StringValue{}, Scope: registry.ScopeNamespace, MayRead: maySee},
	}
}

func (w *world) mutate(r *registry.Resource[*wrapperspb.StringValue]) error {
	w.note("mutate")
	switch r.Data.GetValue() {
	case incomplete:
		r.Data.Value = complete
	case meddled:
		r.Id.Name = "meddled"
	case broken:
		return errors.New("things cannot be completed today")
	}
	return nil
}

func (w *world) validate(r *registry.Resource[*wrapperspb.StringValue]) error {
	w.note("validate %s", r.Data.GetValue())
	if w.strict || r.Data.GetValue() == refused {
		return errors.New("a thing must be better than this")
	}
	return nil
}

func (w *world) mayRead(c registry.Caller, _ *resourcepb.ID, _ *resourcepb.Resource) error {
	w.note("may read")
	return c.OperatorRead()
}

func (w *world) mayWrite(c registry.Caller, res *resourcepb.Resource) error {
	w.note("may write %s", stringOf(res))
	return c.OperatorWrite()
}

func (w *world) mayList(c registry.Caller, _ *resourcepb.Type, _ *resourcepb.Tenancy) error {
	w.note("may list")
	return c.OperatorRead()
}

// maySee lets callers with a token see the secrets for that token.
func maySee(c registry.Caller, _ *resourcepb.ID, res *resourcepb.Resource) error {
	who := string(c.(caller))
	switch {
	case who == "":
		return nil
	case res == nil:
		return registry.ErrNeedResource
	case !slices.Contains(strings.Fields(res.GetMetadata()[readableBy]), who):
		return fmt.Errorf("%w: this secret is not for %s", registry.ErrDenied, who)
	}
	return nil
}

func (w *world) options() *service.Options {
	return &service.Options{Authenticate: w.authenticate, Tenancies: units{}, Logger: silent}
}

func (w *world) authenticate(ctx context.Context, token string, t *resourcepb.Tenancy) (registry.Caller, error) {
	w.note("authenticate %s/%s", t.GetPartition(), t.GetNamespace())
	switch token {
	case stranger:
		return nil, fmt.Errorf("%w: unknown token", service.ErrUnauthenticated)
	case unsettled:
		return nil, errors.New("the list of tokens is unavailable")
	case stuck:
		<-ctx.Done()
		return nil, fmt.Errorf("look the token up: %w", ctx.Err())
	}
	return caller(token), nil
}

// caller is the caller with a token.
type caller string

// OperatorRead implements registry.Caller.
func (c caller) OperatorRead() error {
	switch c {
	case nobody:
		return fmt.Errorf("%w: nobody may not read", registry.ErrDenied)
	case undecided:
		return errors.New("the policy is unavailable")
	}
	return nil
}

// OperatorWrite implements registry.Caller.
func (c caller) OperatorWrite() error {
	switch c {
	case nobody, reader:
		return fmt.Errorf("%w: %s may not write", registry.ErrDenied, string(c))
	case undecided:
		return errors.New("the policy is unavailable")
	}
	return nil
}

// units are the existing tenancies.
type units struct{}

// Exists implements service.Tenancies.
func (units) Exists(_ context.Context, t *resourcepb.Tenancy) (bool, error) {
	known := []string{"", "default", east, leaving}
	return slices.Contains(known, t.GetPartition()) && slices.Contains(known, t.GetNamespace()), nil
}

// DeletionPending implements service.Tenancies.
func (units) DeletionPending(_ context.Context, t *resourcepb.Tenancy) (bool, error) {
	return t.GetPartition() == leaving || t.GetNamespace() == leaving, nil
}

// stringOf returns the text in the payload of a thing.
func stringOf(res *resourcepb.Resource) string {
	var data wrapperspb.StringValue
	if res.GetData() == nil || proto.Unmarshal(res.GetData().GetValue(), &data) != nil {
		return ""
	}
	return data.GetValue()
}
