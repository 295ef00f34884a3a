package conformancecmd

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage/conformance"
)

func TestRedacted(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"postgres://u:secret@h/d?schema=s":                                    "postgres://u@h/d?schema=s",
		"postgres://h/d?password=secret&sslpassword=secret":                   "postgres://h/d?password=…&sslpassword=…",
		"postgres://h/d?replica=" + url.QueryEscape("postgres://u:secret@h/"): "postgres://h/d?replica=…",
		"etcds://u:secret@a:1,b:2/p?password-file=/secret":                    "etcds://u@a:1,b:2/p?password-file=…",
		"sqlite:a.db": "sqlite:a.db",
		"mem://x y":   "a store",
	} {
		require.Equal(t, want, redactURL(in))
	}
}

// The suite contains the check that detects losses.
func TestLossCheck(t *testing.T) {
	t.Parallel()
	require.True(t, slices.ContainsFunc(conformance.Guarantees(), func(g conformance.Guarantee) bool {
		return slices.Contains(g.Checks, lossCheck) && strings.Contains(g.Text, "stays")
	}))
}
