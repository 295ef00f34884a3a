package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/migrations"
	"github.com/ashlar-dev/storage/postgres"
)

func schemaCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Manage the tables of a Postgres store",
		Long: `Manage the tables of a Postgres store. Opening a store creates them, unless its URL has create=off. It upgrades the tables of an older
program only if its URL has upgrade=auto. These commands do both separately, at a time of your choice or as another database user.`,
		Args: cli.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(schemaStatusCommand(a), schemaPlanCommand(a), schemaUpgradeCommand(a))
	return cmd
}

func schemaStatusCommand(a *cli.App) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:               "status",
		Short:             "Show the version of the tables; changes nothing",
		Example:           "  ashlar schema status --store postgres://db.example/app",
		Args:              cli.ExactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			return onPostgres(a, cmd, func(ctx context.Context, u *url.URL) error {
				s, err := postgres.SchemaStatus(ctx, u)
				if err != nil {
					return fmt.Errorf("schema status: %w", err)
				}
				p := newPrinter(out.format, a.Out)
				switch out.format {
				case "json", "yaml":
					err = p.value("the status", map[string]any{"schema": s.Name, "version": s.Version, "latest": s.Latest, "oldest": s.Oldest})
				case "name":
					err = p.line([]byte(cli.Printable(s.Name)))
				default:
					err = p.line([]byte(schemaLine(s)))
				}
				if err != nil {
					return err
				}
				return p.flush()
			})
		},
	}
	out.flags(cmd)
	return cmd
}

// schemaLine describes the version of a store.
func schemaLine(s postgres.Schema) string {
	line := fmt.Sprintf("schema %s has version %d; this program's is %d", cli.Printable(s.Name), s.Version, s.Latest)
	switch {
	case s.Refusal != nil:
		return line + ": " + cli.Printable(s.Refusal.Error())
	case s.Version == 0 || s.Version == s.Latest:
		return line
	case s.Version > s.Latest:
		return line + ", and it can use the store"
	case s.Version < s.Oldest:
		return line + ", and it needs an upgrade (ashlar schema plan)"
	}
	return line + ", and it can use the store without an upgrade (ashlar schema plan)"
}

func schemaPlanCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "plan",
		Short: "Show the statements of an upgrade, their locks, and the factors of their duration; changes nothing",
		Long: `Show what "ashlar schema upgrade" would execute: for each step its statements, the locks that they take, what their duration depends
on, and the oldest program that can use the store afterwards.`,
		Example:           "  ashlar schema plan --store postgres://db.example/app",
		Args:              cli.ExactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return onPostgres(a, cmd, func(ctx context.Context, u *url.URL) error {
				s, err := postgres.SchemaStatus(ctx, u)
				if err == nil {
					err = s.Refusal
				}
				if err != nil {
					return fmt.Errorf("schema plan: %w", err)
				}
				text := fmt.Appendf(nil, "-- %s\n", schemaLine(s))
				for _, step := range s.Steps {
					text = fmt.Appendf(text, "\n-- to version %d by %s\n-- locks: %s\n-- duration: %s\n-- programs of version %d and later can use the store then\n%s",
						step.Version, step.Name, step.Lock, step.Duration, step.Oldest, step.SQL)
				}
				_, err = a.Out.Write(text)
				return err
			})
		},
	}
}

func schemaUpgradeCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "upgrade",
		Aliases: []string{"up"},
		Short:   "Create the tables, or upgrade them to this program's version",
		Long: `Create the tables, or upgrade them to this program's version, in one transaction. "ashlar schema plan" shows the statements, and whether
older programs can use the store afterwards.`,
		Example:           "  ashlar schema upgrade --store postgres://owner@db.example/app",
		Args:              cli.ExactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return onPostgres(a, cmd, func(ctx context.Context, u *url.URL) error {
				from, err := postgres.UpgradeSchema(ctx, u)
				if err != nil {
					return fmt.Errorf("schema upgrade: %w", err)
				}
				if from >= migrations.Latest {
					_, err = fmt.Fprintf(a.Out, "version %d already\n", from)
				} else {
					_, err = fmt.Fprintf(a.Out, "from version %d to %d\n", from, migrations.Latest)
				}
				return err
			})
		},
	}
}

// onPostgres calls do with the store's URL if it is a Postgres URL: no other adapter has tables to manage.
func onPostgres(a *cli.App, cmd *cobra.Command, do func(context.Context, *url.URL) error) error {
	ctx, cancel, err := a.Context(cmd)
	if err != nil {
		return err
	}
	defer cancel()
	rawURL := a.Store
	if rawURL == "" {
		rawURL = a.Getenv("ASHLAR_STORE")
	}
	scheme, _, _ := strings.Cut(strings.ToLower(rawURL), ":")
	if scheme != "postgres" && scheme != "postgresql" {
		return cli.Usagef("only a Postgres store has a schema: name one with --store or ASHLAR_STORE")
	}
	// The error of url.Parse would repeat the URL, and with it a password.
	u, err := url.Parse(rawURL)
	if err != nil {
		return cli.Usagef("malformed %s URL", scheme)
	}
	return cli.Cause(ctx, do(ctx, u))
}
