package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/resourcepb"
)

// completionTime bounds the time that a shell waits for proposals.
const completionTime = 3 * time.Second

// completionLimit is the maximum number of proposed names.
const completionLimit = 500

// completeTypes proposes the types in the store.
func completeTypes(a *cli.App) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var proposals []cobra.Completion
		openExisting(cmd.Context(), a, func(ctx context.Context, backend storage.Backend) {
			counts, err := countTypes(ctx, backend, wholeStore())
			if err != nil {
				return
			}
			for _, c := range counts {
				proposals = append(proposals, c.Group+"/"+c.Kind)
			}
		})
		return proposals, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeNames proposes types, and then the names of the given type.
func completeNames(a *cli.App, where *tenancy) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) != 1 {
			return completeTypes(a)(cmd, args, begun)
		}
		var proposals []cobra.Completion
		typ, err := parseType(args[0], false)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		openExisting(cmd.Context(), a, func(ctx context.Context, backend storage.Backend) {
			f := filter{tenancy: *where, prefix: begun, limit: completionLimit}
			// Names found before an error are still useful proposals.
			_ = eachResource(ctx, backend, typ, f, func(res *resourcepb.Resource) error {
				proposals = append(proposals, res.GetId().GetName())
				return nil
			})
		})
		return proposals, cobra.ShellCompDirectiveNoFileComp
	}
}

// openExisting opens the store if it already exists: completion must not create one. Without a store there are no proposals, and errors are
// not shown.
func openExisting(ctx context.Context, a *cli.App, do func(context.Context, storage.Backend)) {
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	if backend, err := a.Open(ctx, cli.Existing); err == nil {
		do(ctx, backend)
		_ = backend.Close() // read-only
	}
}
