package web

import (
	"context"
	"net/http"
	"strings"

	"google.golang.org/grpc/metadata"
)

// callContext returns the context for the calls of a request, with the token and the consistency mode.
func callContext(ctx context.Context, token string, q query) context.Context {
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "x-consul-token", token)
	}
	if q.consistent() {
		ctx = metadata.AppendToOutgoingContext(ctx, "x-consul-consistency-mode", "consistent")
	}
	return ctx
}

// TokenOf returns the token in the headers of a request, "" for none. Invalid and contradictory headers are errors.
func TokenOf(header http.Header) (string, error) {
	tokens := header.Values("X-Consul-Token")
	for _, value := range header.Values("Authorization") {
		scheme, token, _ := strings.Cut(value, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return "", refuse(http.StatusUnauthorized, "the Authorization header is not valid: expected Bearer and a token")
		}
		tokens = append(tokens, strings.TrimSpace(token))
	}
	var found string
	for _, token := range tokens {
		if strings.ContainsFunc(token, func(r rune) bool { return r < ' ' || r > '~' }) {
			return "", refuse(http.StatusUnauthorized, "the token has characters other than printable ASCII")
		}
		if found != "" && token != "" && token != found {
			return "", refuse(http.StatusBadRequest, "the request has two different tokens")
		}
		if token != "" {
			found = token
		}
	}
	return found, nil
}
