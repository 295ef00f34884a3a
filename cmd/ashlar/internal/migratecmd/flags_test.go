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
	f.from = "dynamodb://table/app?region=eu-north-1&endpoint=http://127.0.0.1:8000&profile=me"
	require.Contains(t, f.resumeCommand(), "--from 'dynamodb://table/app?endpoint=http%3A%2F%2F127.0.0.1%3A8000&profile=me&region=eu-north-1' --to")
	f.from = "dynamodb://table?endpoint=http://me:secret@127.0.0.1:8000"
	require.NotContains(t, f.resumeCommand(), "secret")
	f.from = "dynamodb://table?endpoint=http://me:sec/ret@127.0.0.1:8000"
	require.NotContains(t, f.resumeCommand(), "sec")
	f.from = "postgres://me:secret@db/app"
	for next, want := range map[migrate.Next]string{migrate.AbortFirst: "would fail again", migrate.Stop: "status --store", migrate.Nothing: ""} {
		require.Contains(t, f.nextStep(&migrate.Result{Next: next}), want)
	}
	require.NotContains(t, f.nextStep(&migrate.Result{Next: migrate.Retry}), "secret")
}
