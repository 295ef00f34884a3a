package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage/service/client"
)

// If another client creates a resource between the read and the write of apply, apply does not overwrite it unread: it retries and updates
// it.
func TestApplyThroughServerRetries(t *testing.T) {
	t.Parallel()
	s := serveStore(t, memoryURL())
	c := s.cli(t)
	server, err := client.Dial(client.Options{Address: s.grpc})
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Close()) }()
	for others, want := range map[string]string{"theirs": "updated", "mine": "unchanged"} {
		m := &interferer{Backend: server, deeds: []func(){func() { c.ok(configMap(others+"-a", others), "apply", "-f", "-") }}}
		said, err := applyTo(t, m, configMap(others+"-a", "mine"))
		require.NoError(t, err)
		require.Equal(t, "core/ConfigMap default/"+others+"-a "+want+"\n", said)
	}
}
