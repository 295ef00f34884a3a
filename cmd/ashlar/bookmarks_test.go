package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/resourcepb"
)

// A bookmark line follows every resource that existed when the watch requested it, and it comes even without a change.
func TestBookmarks(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"memory": memoryURL(), "SQLite": fileURL(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newRunner(t, url)
			expect := func(w *watchRun, want ...string) (cursor string) {
				t.Helper()
				for _, what := range want {
					var got string
					got, cursor = eventName(t, w.next())
					require.Equal(t, what, got)
				}
				return cursor
			}
			empty := c.watch("core/ConfigMap", "-o", "name", "--bookmarks")
			require.Equal(t, "synced", empty.next())
			require.Equal(t, "bookmark", empty.next())
			empty.stop()
			require.Equal(t, cli.ExitOK, empty.end())

			c.ok(configMap("a", "0"), "apply", "-f", "-")
			w := c.watch("core/ConfigMap", "-o", "json", "--show-cursor", "--bookmarks")
			cursor := expect(w, "upsert a", "end", "bookmark")
			for _, text := range []string{"1", "2"} {
				c.ok(configMap("a", text), "apply", "-f", "-")
				expect(w, "upsert a", "bookmark")
			}
			w.stop()
			require.Equal(t, cli.ExitOK, w.end())

			// From the cursor of a bookmark the watch shows later changes, and then a bookmark. Bookmarks do not count for --limit.
			w = c.watch("core/ConfigMap", "-o", "json", "--show-cursor", "--bookmarks", "--cursor", cursor, "--limit", "3")
			cursor = expect(w, "upsert a", "upsert a", "bookmark")
			c.ok("", "delete", "core/ConfigMap", "a")
			expect(w, "delete a")
			require.Equal(t, cli.ExitOK, w.end())
			w = c.watch("core/ConfigMap", "-o", "name", "--bookmarks", "--show-cursor", "--cursor", cursor)
			require.Regexp(t, `^delete core/ConfigMap/a cursor=.+$`, w.next())
			require.Regexp(t, `^bookmark cursor=.+$`, w.next())
			w.stop()
			require.Equal(t, cli.ExitOK, w.end())
		})
	}
}

// plainWatch is the watch of a store without bookmarks.
type plainWatch struct{ storage.Watch }

func TestBookmarksUnsupported(t *testing.T) {
	t.Parallel()
	backend, err := storage.Open(t.Context(), memoryURL())
	require.NoError(t, err)
	defer func() { require.NoError(t, backend.Close()) }()
	watch, err := backend.WatchList(t.Context(), storage.UnversionedType{Group: "*", Kind: "*"}, &resourcepb.Tenancy{Partition: "*", Namespace: "*"}, "")
	require.NoError(t, err)
	defer watch.Close()
	w := watcher{app: &cli.App{}, bookmarks: true}
	require.ErrorContains(t, w.show(context.Background(), plainWatch{watch}, false), "omit --bookmarks")
}
