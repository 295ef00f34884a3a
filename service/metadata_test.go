package service

import (
	"context"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/ashlar-dev/storage"
)

func TestToken(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		pairs []string
		want  string
	}{
		{"none", nil, ""},
		{"of its own key", []string{"x-consul-token", "a b"}, "a b"},
		{"the first of several", []string{"x-consul-token", "a", "x-consul-token", "b"}, "a"},
		{"bearer", []string{"authorization", "Bearer a"}, "a"},
		{"bearer in lower case", []string{"authorization", "bearer  a "}, "a"},
		{"its own key before authorization", []string{"authorization", "Bearer a", "x-consul-token", "b"}, "b"},
		{"an empty one beside authorization", []string{"authorization", "Bearer a", "x-consul-token", ""}, "a"},
		{"another scheme", []string{"authorization", "Basic a"}, ""},
		{"a scheme alone", []string{"authorization", "Bearer"}, ""},
		{"a scheme with the same beginning", []string{"authorization", "Bearera b"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs(c.pairs...))
			if got := Token(ctx); got != c.want {
				t.Errorf("token of %q is %q, expected %q", c.pairs, got, c.want)
			}
		})
	}
	if got := Token(context.Background()); got != "" {
		t.Errorf("a context without metadata has the token %q", got)
	}
}

func TestConsistency(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]storage.ReadConsistency{
		"consistent":  storage.StrongConsistency,
		"Consistent":  storage.EventualConsistency,
		"consistent ": storage.EventualConsistency,
		"stale":       storage.EventualConsistency,
		"":            storage.EventualConsistency,
	} {
		ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs("x-consul-consistency-mode", value))
		if got := consistency(ctx); got != want {
			t.Errorf("the consistency of %q is %v, expected %v", value, got, want)
		}
	}
	if got := consistency(context.Background()); got != storage.EventualConsistency {
		t.Errorf("the consistency without metadata is %v, expected %v", got, storage.EventualConsistency)
	}
	outgoing := metadata.AppendToOutgoingContext(context.Background(), "x-consul-consistency-mode", "consistent", "x-consul-token", "a")
	if got, mode := Token(outgoing), consistency(outgoing); got != "" || mode != storage.EventualConsistency {
		t.Errorf("metadata for another call was read: token %q, consistency %v", got, mode)
	}
}
