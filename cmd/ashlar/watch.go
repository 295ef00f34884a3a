package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/client"
)

func watchCommand(a *cli.App) *cobra.Command {
	w := watcher{app: a}
	cmd := &cobra.Command{
		Use:   "watch TYPE",
		Short: "Show resources, and every change to them",
		Long: `Show the resources of one type or of all types, and then every change to them, until the command is interrupted or reaches --limit or
--timeout, which all end it with exit code 0. TYPE is group/Kind, group/* or *. The namespace is default unless -n names another; -A
selects all namespaces.

With -o json each event is one line of protojson: {"upsert":…}, {"delete":…}, and {"endOfSnapshot":{}} between the existing resources and
the changes. --show-cursor adds the position after the event, from the end of the snapshot on, as the field "cursor" (yaml: likewise;
table and name: a last word cursor=…). --cursor resumes at such a position: no snapshot, and exactly the changes after it. If a cursor is
too old, watch again without one. "more":true marks an event that was committed together with the next one.

With --bookmarks there is a line {"bookmark":{}} (table and name: bookmark) each time the watch has caught up: every write to the store
before the watch requested the bookmark is above it. It requests one at the beginning and after the first change that follows a
bookmark. Not all stores support bookmarks.`,
		Example: `  ashlar watch apps/Deployment
  ashlar watch '*' -A -o json --show-cursor
  ashlar watch '*' -A -o json --cursor AbC…
  ashlar watch '*' -n shop -o name --bookmarks`,
		Args:              cli.ExactArgs("TYPE"),
		ValidArgsFunction: completeTypes(a),
		RunE:              func(cmd *cobra.Command, args []string) error { return w.run(cmd, args[0]) },
	}
	w.filter.flags(cmd, "changes and resources")
	w.out.flags(cmd)
	cmd.Flags().StringVar(&w.cursor, "cursor", "", "resume at this position, without a snapshot")
	cmd.Flags().BoolVar(&w.showCursor, "show-cursor", false, "show the position after each event")
	cmd.Flags().BoolVar(&w.bookmarks, "bookmarks", false, "print a line when the watch has caught up")
	return cmd
}

type watcher struct {
	app        *cli.App
	filter     filter
	out        output
	cursor     string
	showCursor bool
	bookmarks  bool
	list       bool // show the snapshot as a table, for ashlar list
}

func (w *watcher) run(cmd *cobra.Command, arg string) error {
	typ, err := parseType(arg, true)
	if err = errors.Join(err, w.out.check(), w.filter.check(cmd)); err != nil {
		return err
	}
	resume := cmd.Flags().Changed("cursor")
	ctx, cancel, err := w.app.Context(cmd)
	if err != nil {
		return err
	}
	defer cancel()
	err = w.app.With(ctx, cli.Existing, func(backend storage.Backend) error {
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
	// The watch may also be interrupted before it is open.
	if cmd.Context().Err() != nil && isContextError(err) {
		return nil
	}
	return err
}

// isContextError reports whether err is only the error of a context.
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
		return nil, cli.Usagef("this store cannot resume at a cursor")
	}
	return resumer.WatchFrom(ctx, typ, w.filter.proto(), w.filter.prefix, w.cursor)
}

// show prints events until the limit or an error. synced reports whether the snapshot is complete or absent.
func (w *watcher) show(ctx context.Context, watch storage.Watch, synced bool) error {
	p := newPrinter(w.out.format, w.app.Out)
	// A bookmark is requested at the beginning, and again by the first change after one.
	request, marked := w.bookmarks, false
	for shown := 0; ; {
		if request {
			if err := requestBookmark(ctx, watch); err != nil {
				return err
			}
			request = false
		}
		ev, err := watch.Next(ctx)
		if err != nil {
			return err
		}
		_, end := ev.GetEvent().(*resourcepb.WatchEvent_EndOfSnapshot_)
		mark, bookmark := ev.GetEvent().(*resourcepb.WatchEvent_Bookmark_)
		synced = synced || end
		cursor := ""
		// A snapshot has no positions to resume at.
		if w.showCursor && synced {
			cursor = watch.Cursor()
		}
		if bookmark {
			marked = true
			mark.Bookmark.Cursor = "" // it is printed in the same place as for other events
			mark.Bookmark.Request = 0
		}
		if err := w.print(p, ev, cursor, synced); err != nil {
			return err
		}
		if end || bookmark {
			continue
		}
		if shown++; shown == w.filter.limit {
			return p.flush()
		}
		request, marked = marked, false
	}
}

// print prints an event. synced reports whether the snapshot is complete with this event.
func (w *watcher) print(p *printer, ev *resourcepb.WatchEvent, cursor string, synced bool) error {
	switch {
	case w.list && !synced:
		// A table is aligned once it is complete.
		return p.resource(ev.GetUpsert().GetResource(), 0)
	case w.list && ev.GetEndOfSnapshot() != nil:
		return p.flush()
	}
	return errors.Join(p.event(ev, cursor), p.flush())
}

// requestBookmark requests a bookmark from the watch.
func requestBookmark(ctx context.Context, watch storage.Watch) error {
	switch w := watch.(type) {
	case storage.Bookmarker:
		return w.Bookmark(ctx)
	case client.BookmarkedWatch:
		w.ShowBookmark()
		return nil
	}
	return cli.Usagef("this store has no bookmarks: omit --bookmarks")
}
