package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/expiry"
)

func expireCommand(a *cli.App) *cobra.Command {
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "expire",
		Short: "Delete resources after their time to live, until interrupted",
		Long: `Delete the resources of a store whose time to live has passed, until interrupted. A server (ashlar serve) does this itself; this command is for
stores that programs use without a server. It does not call the hooks of a server and leaves no tombstones: resources with an owner that
expires stay.

The time to live belongs to a version: apply --ttl, or the field ttl of a written resource. It starts when this command has observed the
version, and again after a restart of all processes that delete expired resources. Any number of them may run over one store.

The log, on standard error, has failures, and every --report the numbers of pending, deleted and failed resources.`,
		Example:           "  ashlar expire --store sqlite:///var/lib/app/store.db",
		Args:              cli.ExactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every <= 0 {
				return cli.Usagef("--report must be more than 0")
			}
			return a.OnStore(cmd, cli.Existing, func(ctx context.Context, b storage.Backend) error {
				logger := slog.New(slog.NewTextHandler(a.Err, nil))
				return expire(ctx, expiry.New(b, &expiry.Options{Logger: logger}), logger, every)
			})
		},
	}
	cmd.Flags().DurationVar(&every, "report", time.Minute, "time between two reports")
	return cmd
}

// expire runs an Expirer and logs its numbers, until ctx ends.
func expire(ctx context.Context, e *expiry.Expirer, logger *slog.Logger, every time.Duration) error {
	report := func(text string) {
		s := e.Stats()
		logger.InfoContext(ctx, text, "pending", s.Pending, "deleted", s.Deleted, "failures", s.Failures, "overdue", s.Overdue.Round(time.Millisecond))
	}
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	report("deleting resources after their time to live")
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			report("expiry")
		case err := <-ended:
			report("stopped")
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
}
