package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
)

// A tool was killed while it closed a DynamoDB store: the announcement, which makes writes dearer, stays. The status shows the
// announcement and the command to withdraw it.
func TestStatusOfAnAnnouncement(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b, err := storage.Open(t.Context(), s.URL())
	require.NoError(t, err)
	defer b.Close()
	m, _ := storage.As[driver.Mover](b)
	c := newRunner(t, s.URL())
	require.Contains(t, c.ok("", "migrate", "status"), "open, and not the target")

	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = m.SetFence(ctx, new("postgres://there")) // it takes 16 minutes by the server's clock, which stands still
	}()
	require.Eventually(t, func() bool { return s.Items('f') > 0 }, waitTimeout, time.Millisecond)
	status := c.ok("", "migrate", "status")
	require.Contains(t, status, "about to be closed for writing, for postgres://there")
	require.Contains(t, status, "ashlar migrate unfence --store ")
	require.Contains(t, status, "endpoint=")
	end()
	<-ended
	require.Contains(t, c.ok("", "migrate", "status"), "open, and not the target")
}
