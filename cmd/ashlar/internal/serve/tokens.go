package serve

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// tokens authenticates callers and holds their rules. The token file can be read again at any time.
type tokens struct {
	file    string
	current atomic.Pointer[policy]
}

// newTokens reads a token file.
func newTokens(file string) (*tokens, error) {
	t := &tokens{file: file}
	return t, t.load()
}

// load reads the token file. If it fails, the previous contents stay in use.
func (t *tokens) load() error {
	p, err := readPolicy(t.file)
	if err == nil {
		t.current.Store(p)
	}
	return err
}

// authenticate is the Authenticate function of the service.
func (t *tokens) authenticate(ctx context.Context, token string, _ *resourcepb.Tenancy) (registry.Caller, error) {
	who, err := t.find(token)
	if err != nil {
		return nil, err
	}
	setCaller(ctx, who.name)
	return who, nil
}

// callerName returns the name of a token for limits, "" for callers without a token.
func (p *principal) callerName() string {
	if p == nil {
		return ""
	}
	return p.name
}

// caller returns the name of a token for limits, as over gRPC: "" for callers without a token, and if there are no tokens.
func (t *tokens) caller(token string) (string, error) {
	if t == nil {
		return "", nil
	}
	who, err := t.find(token)
	if err != nil || token == "" {
		return "", err
	}
	return who.callerName(), nil
}

// find returns the owner of a token, "" for none. It takes as long for an unknown token as for a known one.
func (t *tokens) find(token string) (*principal, error) {
	p := t.current.Load()
	who := p.anonymous
	if token != "" {
		who = p.find(token)
	}
	switch {
	case who != nil:
		return who, nil
	case token == "":
		return nil, fmt.Errorf("%w: a token is required", service.ErrUnauthenticated)
	}
	return nil, fmt.Errorf("%w: unknown token", service.ErrUnauthenticated)
}

// withRules returns a type with hooks that check the caller's rules.
func withRules(t registry.Type) registry.Type {
	t.MayRead = func(c registry.Caller, id *resourcepb.ID, _ *resourcepb.Resource) error {
		return c.(*principal).may("read", id.GetType(), id.GetTenancy())
	}
	t.MayWrite = func(c registry.Caller, res *resourcepb.Resource) error {
		return c.(*principal).may("write", res.GetId().GetType(), res.GetId().GetTenancy())
	}
	t.MayList = func(c registry.Caller, typ *resourcepb.Type, tenancy *resourcepb.Tenancy) error {
		return c.(*principal).may("list", typ, tenancy)
	}
	return t
}
