package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
)

// manCommand returns a command for the build of a release, so it is hidden.
func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "man FOLDER",
		Short:             "Write a man page for each command into a folder",
		Hidden:            true,
		Args:              cli.ExactArgs("FOLDER"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			header := &doc.GenManHeader{Title: "ASHLAR", Section: "1", Source: cli.BuildVersion(), Manual: "Ashlar"}
			if err := doc.GenManTree(cmd.Root(), header, args[0]); err != nil {
				return fmt.Errorf("write the man pages: %w", err)
			}
			return nil
		},
	}
}
