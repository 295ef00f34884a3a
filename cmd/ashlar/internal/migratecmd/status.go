package migratecmd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/migrate"
)

func migrateStatusCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:               "status",
		Short:             "Show whether the store takes part in a migration",
		Example:           "  ashlar migrate status --store postgres://db.example/app",
		Args:              cli.ExactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.OnStore(cmd, cli.Existing, func(ctx context.Context, b storage.Backend) error {
				fence, err := migrate.ReadFence(ctx, b)
				if err != nil {
					return err
				}
				s, err := migrate.ReadStatus(ctx, b)
				if err != nil {
					return err
				}
				url, err := a.StoreURL()
				if err != nil {
					return err
				}
				lines := append(fenceLines(fence, url), statusLines(s)...)
				if len(lines) == 0 {
					lines = []string{"open, and not the target of a migration"}
				}
				_, err = fmt.Fprintln(a.Out, strings.Join(lines, "\n"))
				return err
			})
		},
	}
}

// fenceLines describes the fence of the store at a URL, unless the store is open.
func fenceLines(fence driver.FenceState, url string) []string {
	target := cli.Printable(fence.Target)
	switch {
	case fence.Closed && fence.Admits != "":
		return []string{fmt.Sprintf("closed for other writers: it is being filled from %s, and opens when the migration is complete or aborted", target)}
	case fence.Closed:
		return []string{fmt.Sprintf("closed for writing: it has moved to %s (if that store is not in use, reopen the source with ashlar migrate unfence)", target)}
	case fence.Announced:
		return []string{fmt.Sprintf("about to be closed for writing, for %s, and each write costs more (if no migration is at work, withdraw this: %s)",
			target, unfenceCommand(url))}
	}
	return nil
}

// statusLines describes the migration that a store is the target of, if there is one.
func statusLines(s *migrate.Status) []string {
	if s == nil {
		return nil
	}
	lines := []string{fmt.Sprintf("target of a migration from %s: phase %s, started %s, last activity %s", cli.Printable(s.From), s.Phase,
		s.StartTime.Format(time.RFC3339), s.UpdateTime.Format(time.RFC3339))}
	if s.Phase != migrate.Complete {
		lines = append(lines, "to continue: the original command; to abort: "+(&storePair{from: s.From, to: s.To}).commandLine("abort"))
	}
	return lines
}
