package serve

import (
	"context"
	"crypto/x509"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// tokens authenticates callers and holds their rules. The token file can be read again at any time.
type tokens struct {
	file    string
	check   func(*policy) error // nil until the types are known
	current atomic.Pointer[policy]
}

// load reads the token file. If it fails, the previous contents stay in use.
func (t *tokens) load() error {
	p, err := readPolicy(t.file)
	if err == nil && t.check != nil {
		err = t.check(p)
	}
	if err == nil {
		t.current.Store(p)
	}
	return err
}

// authenticate is the Authenticate function of the service.
func (t *tokens) authenticate(ctx context.Context, token string, _ *resourcepb.Tenancy) (registry.Caller, error) {
	who, err := t.find(ctx, token)
	if err != nil {
		return nil, err
	}
	setCaller(ctx, who.name)
	return who, nil
}

// callerName returns the name of a principal for limits, "" for callers without a token.
func (h *principal) callerName() string {
	if h == nil || h.anonymous {
		return ""
	}
	return h.name
}

// caller returns the name of the caller of ctx for limits: "" for callers without a token or certificate, and if there are no tokens.
func (t *tokens) caller(ctx context.Context, token string) (string, error) {
	if t == nil {
		return "", nil
	}
	who, err := t.find(ctx, token)
	return who.callerName(), err
}

// find returns the owner of a token. Without a token it returns the owner of the client certificate of ctx, or else the anonymous principal.
func (t *tokens) find(ctx context.Context, token string) (*principal, error) {
	p := t.current.Load()
	if token != "" {
		return p.find(token, time.Now())
	}
	if c := clientCertificate(ctx); c != nil {
		if who := p.findCertificate(c); who != nil {
			return who, nil
		}
	}
	if p.anonymous != nil {
		return p.anonymous, nil
	}
	return nil, fmt.Errorf("%w: a token is required", service.ErrUnauthenticated)
}

// clientCertificate returns the verified certificate of the client of a call, or nil.
func clientCertificate(ctx context.Context) *x509.Certificate {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info := p.AuthInfo
	if closable, ok := info.(closableInfo); ok {
		info = closable.AuthInfo
	}
	if secured, ok := info.(credentials.TLSInfo); ok && len(secured.State.VerifiedChains) > 0 {
		return secured.State.PeerCertificates[0]
	}
	return nil
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
