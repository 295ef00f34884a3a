package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

func historyCommand(a *cli.App) *cobra.Command {
	var where tenancy
	var out output
	cmd := &cobra.Command{
		Use:   "history TYPE NAME",
		Short: "Show the versions of a resource that the store has kept",
		Long: `Show each version of a resource that the store has kept, oldest first: its revision, the operation, and the fields that differ from the
previous version. Deletions are shown as well. If the resource was deleted and created again, all of its lives are shown.

The first line may be "kept": the version that was stored at the oldest revision of the store, with its own revision. Earlier versions
have been deleted, by the retention of the store or by ashlar compact.

The time of a version comes from its generation, if that is a ULID, as with apply: it is from the clock of the writer. A write that
keeps the generation, such as a status update, has no time. Stores keep no other time. "by" names the token that wrote the version, if a
server with --record-author did it. A deletion has no author.

With -o json each version is one line: {"change":…,"revision":…,"time":…,"now":…}.`,
		Example: `  ashlar history apps/Deployment storefront -n shop
  ashlar history core/ConfigMap settings -o json`,
		Args:              cli.ExactArgs("TYPE", "NAME"),
		ValidArgsFunction: completeNames(a, &where),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := where.id(args[0], args[1])
			if err = errors.Join(err, out.check()); err != nil {
				return err
			}
			return onHistory(a, cmd, filterOf(id), func(ctx context.Context, h historySource) error {
				p := newPrinter(out.format, a.Out)
				found, err := historyOf(ctx, h, id, p.version)
				if err == nil && !found {
					err = fmt.Errorf("%w, and the store has kept no version of it", storage.ErrNotFound)
				}
				if err != nil {
					return errors.Join(p.flush(), fmt.Errorf("history of %s: %w", cli.FullName(id), err))
				}
				return p.flush()
			})
		},
	}
	where.flags(cmd, cli.DefaultTenancy)
	out.flags(cmd)
	return cmd
}

// filterOf returns a filter that matches a key and longer keys with the same beginning.
func filterOf(id *resourcepb.ID) *key.Filter {
	k := key.Of(id)
	return &key.Filter{Group: k.Group, Kind: k.Kind, Partition: k.Partition, Namespace: k.Namespace, NamePrefix: k.Name}
}

// version is a version of a resource, or its deletion.
type version struct {
	operation   string
	revision    int64
	before, now *history.Record // now is nil for a deletion
}

// historyOf shows the versions of a resource that the store has kept, oldest first, while it reads them, and reports whether there were
// any. It skips versions that the store forgets meanwhile.
func historyOf(ctx context.Context, h historySource, id *resourcepb.ID, show func(*version) error) (shown bool, err error) {
	last := int64(0) // the last revision shown
	once := func(v *version) error {
		if v.revision <= last {
			return nil
		}
		last = v.revision
		return show(v)
	}
	for {
		oldest, newest, err := h.Revisions(ctx, filterOf(id))
		if err != nil {
			return last > 0, err
		}
		err = showChanges(ctx, h, id, oldest, newest, once)
		if !errors.Is(err, storage.ErrCompacted) {
			return last > 0, err
		}
		if later, _, unknown := h.Revisions(ctx, filterOf(id)); unknown != nil || later <= oldest {
			return last > 0, err // a retry would fail in the same way
		}
	}
}

// showChanges shows the version stored at the oldest revision, and all changes from there to the newest one.
func showChanges(ctx context.Context, h historySource, id *resourcepb.ID, oldest, newest int64, show func(*version) error) error {
	first, _, err := h.RecordsAt(filterOf(id), oldest, 1)(ctx)
	if err != nil {
		return err
	}
	if len(first) > 0 && key.Of(first[0].Resource.GetId()) == key.Of(id) {
		if err := show(&version{operation: "kept", revision: first[0].Modified, now: &first[0]}); err != nil {
			return err
		}
	}
	if oldest == newest {
		return nil
	}
	return h.Changes(ctx, id, oldest, newest, func(c *history.Change) error {
		return show(&version{operation: operation(c), revision: c.Revision, before: c.Old, now: c.New})
	})
}

// operation returns the name of a change.
func operation(c *history.Change) string {
	switch {
	case c.New == nil:
		return "deleted"
	case c.Old == nil:
		return "created"
	}
	return "changed"
}

// version prints a version, followed by the fields that differ from the previous version.
func (p *printer) version(v *version) error {
	when := v.time()
	switch p.format {
	case "json", "yaml":
		return p.object(member{"change", v.operation}, member{"revision", v.revision}, member{"time", when}, member{"now", v.now})
	case "name":
		return p.line(fmt.Appendf(nil, "%d %s", v.revision, v.operation))
	}
	head := fmt.Sprintf("%8d  %s", v.revision, v.operation)
	if when != "" {
		head += "  " + when
	}
	if author := v.author(); author != "" {
		head += "  by " + author
	}
	if v.operation == "kept" && v.now.Writes > 1 {
		head += fmt.Sprintf("  (write %d since it was created at revision %d)", v.now.Writes, v.now.Created)
	}
	if err := p.line([]byte(head)); err != nil {
		return err
	}
	return p.fields(v.before, v.now)
}

// author returns the author of this version, "" if the store has not recorded one.
func (v *version) author() string {
	if v.now == nil {
		return ""
	}
	return v.now.Resource.GetAuthor()
}

// time returns the time in the generation of this version. It returns "" if the generation is unchanged or contains no time.
func (v *version) time() string {
	if v.now == nil || v.before != nil && v.before.Resource.GetGeneration() == v.now.Resource.GetGeneration() {
		return ""
	}
	generation, err := ulid.ParseStrict(v.now.Resource.GetGeneration())
	if err != nil {
		return ""
	}
	return ulid.Time(generation.Time()).UTC().Format(time.RFC3339)
}
