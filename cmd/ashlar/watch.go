package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/client"
	"github.com/ashlar-dev/storage/resourcepb"
)

func watchCommand(a *cli.App) *cobra.Command {
	w := watcher{app: a}
	cmd := &cobra.Command{
		Use:   "watch TYPE",
		Short: "Show resources, and every change to them",
		Long: `Show the resources of a type, or of all, and then every change to them, until it is interrupted or --limit or --timeout is
reached, which all end it with exit code 0. TYPE is group/Kind, group/* or *.

With -o json there is one event on a line, as protojson: {"upsert":…}, {"delete":…}, and {"endOfSnapshot":{}} between what was
there and what changes. --show-cursor adds the position after the event, from the end of the snapshot on, as another field
"cursor" (yaml: likewise; table and name: a last word cursor=…). --cursor goes on from such a position: no snapshot, and
exactly the changes after it. If a cursor is too old, watch without one again. "more":true says that the next event was
committed together with this one.

With --bookmarks there is a line {"bookmark":{}} (table and name: bookmark) each time the watch has caught up: everything that
was written to the store, by anybody, before the watch asked, is above it. It asks when it begins and after every change that
follows a bookmark. Not all stores can tell.`,
		Example: `  ashlar watch apps/Deployment
  ashlar watch '*' -o json --show-cursor
  ashlar watch '*' -o json --cursor AbC…
  ashlar watch '*' -o name --bookmarks`,
		Args:              cli.ExactArgs("TYPE"),
		ValidArgsFunction: completeTypes(a),
		RunE:              func(cmd *cobra.Command, args []string) error { return w.run(cmd, args[0]) },
	}
	w.filter.flags(cmd, "changes and resources")
	w.out.flags(cmd)
	cmd.Flags().StringVar(&w.cursor, "cursor", "", "go on from this position, without a snapshot")
	cmd.Flags().BoolVar(&w.showCursor, "show-cursor", false, "show the position after each event")
	cmd.Flags().BoolVar(&w.bookmarks, "bookmarks", false, "say when everything that had been written is shown")
	return cmd
}

type watcher struct {
	app        *cli.App
	filter     filter
	out        output
	cursor     string
	showCursor bool
	bookmarks  bool
	list       bool // the snapshot is a table, as of ashlar list
}

func (w *watcher) run(cmd *cobra.Command, arg string) error {
	typ, err := parseType(arg, true)
	if err = errors.Join(err, w.out.check(), w.filter.check()); err != nil {
		return err
	}
	resume := cmd.Flags().Changed("cursor")
	ctx, cancel, err := w.app.Context(cmd)
	if err != nil {
		return err
	}
	defer cancel()
	err = w.app.With(ctx, func(backend storage.Backend) error {
		watch, err := w.open(ctx, backend, typ, resume)
		if err != nil {
			return fmt.Errorf("watch %s: %w", arg, err)
		}
		defer watch.Close()
		err = w.show(ctx, watch, resume)
		if err == nil || ctx.Err() != nil && isContextError(err) {
			return nil
		}
		return fmt.Errorf("watch %s: %w", arg, err)
	})
	// The user may also lose patience before the watch is open.
	if cmd.Context().Err() != nil && isContextError(err) {
		return nil
	}
	return err
}

// isContextError says whether err is only that of a context.
func isContextError(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

func (w *watcher) open(ctx context.Context, backend storage.Backend, typ storage.UnversionedType, resume bool) (storage.Watch, error) {
	if server, ok := backend.(*client.Backend); ok {
		server.Bookmarks = w.bookmarks
	}
	if !resume {
		return backend.WatchList(ctx, typ, w.filter.proto(), w.filter.prefix)
	}
	resumer, ok := storage.As[storage.Resumer](backend)
	if !ok {
		return nil, cli.Usagef("this store cannot go on from a cursor")
	}
	return resumer.WatchFrom(ctx, typ, w.filter.proto(), w.filter.prefix, w.cursor)
}

// show prints events until the limit or an error. joined says that there is no snapshot to come.
func (w *watcher) show(ctx context.Context, watch storage.Watch, joined bool) error {
	p := newPrinter(w.out.format, w.app.Out)
	// A bookmark is asked for at the beginning, and again by the first change after one.
	asking, marked := w.bookmarks, false
	for shown := 0; ; {
		if asking {
			if err := requestBookmark(ctx, watch); err != nil {
				return err
			}
			asking = false
		}
		ev, err := watch.Next(ctx)
		if err != nil {
			return err
		}
		_, end := ev.GetEvent().(*resourcepb.WatchEvent_EndOfSnapshot_)
		mark, bookmark := ev.GetEvent().(*resourcepb.WatchEvent_Bookmark_)
		joined = joined || end
		cursor := ""
		// Inside a snapshot there is no position to go on from.
		if w.showCursor && joined {
			cursor = watch.Cursor()
		}
		if bookmark {
			marked = true
			mark.Bookmark.Cursor = "" // it is shown where those of other events are
		}
		if err := w.print(p, ev, cursor, joined); err != nil {
			return err
		}
		if end || bookmark {
			continue
		}
		if shown++; shown == w.filter.limit {
			return p.flush()
		}
		asking, marked = marked, false
	}
}

// print prints an event. joined says that the snapshot is complete with it.
func (w *watcher) print(p *printer, ev *resourcepb.WatchEvent, cursor string, joined bool) error {
	switch {
	case w.list && !joined:
		// A table is aligned when all of it is there.
		return p.resource(ev.GetUpsert().GetResource(), 0)
	case w.list && ev.GetEndOfSnapshot() != nil:
		return p.flush()
	}
	return errors.Join(p.event(ev, cursor), p.flush())
}

// requestBookmark has a bookmark event come.
func requestBookmark(ctx context.Context, watch storage.Watch) error {
	b, ok := watch.(storage.Bookmarker)
	if !ok {
		return cli.Usagef("this store cannot tell when a watch has caught up: leave out --bookmarks")
	}
	return b.Bookmark(ctx)
}
