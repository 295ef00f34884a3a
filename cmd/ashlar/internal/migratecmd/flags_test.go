package migratecmd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage/migrate"
)

func TestCommandLines(t *testing.T) {
	t.Parallel()
	f := &migrateFlags{storePair: storePair{from: "postgres://me:secret@db/app?sslmode=disable&schema=a'b", to: "sqlite:///tmp/x y"}, live: true, mirror: true, lag: time.Second}
	require.Equal(t, "ashlar migrate --from 'postgres://db/app?schema=a%27b' --to sqlite:///tmp/x%20y --live --mirror --cutover-when-lag-below 1s", f.resumeCommand())
	require.Equal(t, "'it'\\''s'", shellQuote("it's"))
	for next, want := range map[migrate.Next]string{migrate.AbortFirst: "would fail again", migrate.Stop: "status --store", migrate.Nothing: ""} {
		require.Contains(t, f.nextStep(&migrate.Result{Next: next}), want)
	}
	require.NotContains(t, f.nextStep(&migrate.Result{Next: migrate.Retry}), "secret")
}
