package serve

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/service/web"
)

// identify returns the caller with a token, or with the client certificate of ctx, for /whoami. Without tokens every caller may do everything.
func (t *tokens) identify(ctx context.Context, token string) (web.Identity, error) {
	everything := rule{types: []storage.UnversionedType{{Group: storage.Wildcard, Kind: storage.Wildcard}}, partition: storage.Wildcard,
		namespace: storage.Wildcard, read: true, list: true, write: true}
	if t == nil {
		return web.Identity{Rules: []web.Rule{everything.describe()}}, nil
	}
	who, err := t.find(ctx, token)
	if err != nil {
		return web.Identity{}, status.Error(codes.Unauthenticated, err.Error())
	}
	found := web.Identity{Name: who.name, Rules: []web.Rule{}}
	for i := range who.rules {
		found.Rules = append(found.Rules, who.rules[i].describe())
	}
	if at := t.current.Load().expiry(token); !at.IsZero() {
		found.Expires = &at
	}
	return found, nil
}

// describe returns a rule as in the token file.
func (r *rule) describe() web.Rule {
	d := web.Rule{Partition: r.partition, Namespace: r.namespace, Types: []string{}, May: []string{}}
	for _, u := range r.types {
		name := fmt.Sprintf("%s/%s", u.Group, u.Kind)
		if u.Group == storage.Wildcard {
			name = storage.Wildcard
		}
		d.Types = append(d.Types, name)
	}
	for _, action := range []string{"read", "list", "write"} {
		if r.allows(action) {
			d.May = append(d.May, action)
		}
	}
	return d
}
