package service

import (
	"context"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/ashlar-dev/storage"
)

// The metadata of a call that the service reads, beside "authorization". The names are those of the API that this one is compatible with.
const (
	tokenKey       = "x-consul-token"
	consistencyKey = "x-consul-consistency-mode"
)

// consistent is the consistency mode that asks for a linearizable answer. Another value, in other case too, asks for nothing.
const consistent = "consistent"

// token returns the token that a call carries, "" for none: that of x-consul-token, or else a bearer token of authorization.
func token(ctx context.Context) string {
	if t := first(ctx, tokenKey); t != "" {
		return t
	}
	scheme, t, _ := strings.Cut(first(ctx, "authorization"), " ")
	if strings.EqualFold(scheme, "bearer") {
		return strings.TrimSpace(t)
	}
	return ""
}

// consistency returns the consistency of the reads of a call: eventual, unless its metadata asks for more.
func consistency(ctx context.Context) storage.ReadConsistency {
	if first(ctx, consistencyKey) == consistent {
		return storage.StrongConsistency
	}
	return storage.EventualConsistency
}

// first returns the first value of a key of the metadata that came with a call, "" if there is none.
func first(ctx context.Context, key string) string {
	if values := metadata.ValueFromIncomingContext(ctx, key); len(values) > 0 {
		return values[0]
	}
	return ""
}
