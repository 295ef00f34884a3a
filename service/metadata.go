package service

import (
	"context"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/ashlar-dev/storage"
)

// The metadata keys that the service reads, besides "authorization". The compatible API has the same.
const (
	tokenKey       = "x-consul-token"
	consistencyKey = "x-consul-consistency-mode"
)

// consistent is the consistency mode of a linearizable read. Other values, and other cases of it, have no effect.
const consistent = "consistent"

// Token returns the token in the metadata of an incoming call, "" for none: the value of x-consul-token, or else a bearer token of
// authorization. A server that refuses callers before it reads their messages takes the token from here.
func Token(ctx context.Context) string {
	if t := first(ctx, tokenKey); t != "" {
		return t
	}
	scheme, t, _ := strings.Cut(first(ctx, "authorization"), " ")
	if strings.EqualFold(scheme, "bearer") {
		return strings.TrimSpace(t)
	}
	return ""
}

// consistency returns the read consistency of a call: strong if its metadata requests that, otherwise eventual.
func consistency(ctx context.Context) storage.ReadConsistency {
	if first(ctx, consistencyKey) == consistent {
		return storage.StrongConsistency
	}
	return storage.EventualConsistency
}

// first returns the first value of a key in the incoming metadata of a call, or "".
func first(ctx context.Context, key string) string {
	if values := metadata.ValueFromIncomingContext(ctx, key); len(values) > 0 {
		return values[0]
	}
	return ""
}
