package migratecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/migrate"
)

// ExportCommand returns the export command.
func ExportCommand(a *cli.App) *cobra.Command {
	var allowEmpty bool
	cmd := &cobra.Command{
		Use:   "export FILE",
		Short: "Write all of a store to a file",
		Long: `Write all of a store to a file, compressed and with a checksum: everything except the versions. If FILE is -, it is written to
standard output. An existing file is replaced only after the export is complete. An empty store is an error without --allow-empty.`,
		Example: "  ashlar export store.ashlar\n  ashlar export - | ssh elsewhere ashlar import -",
		Args:    cli.ExactArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.OnStore(cmd, cli.Existing, func(ctx context.Context, b storage.Backend) error {
				if !allowEmpty {
					if err := refuseEmpty(ctx, b); err != nil {
						return fmt.Errorf("export: %w", err)
					}
				}
				if args[0] == "-" {
					_, err := migrate.Export(ctx, b, a.Out)
					return err
				}
				s, err := exportFile(ctx, b, args[0])
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(a.Out, "%d resources, %d bytes, exported to %s\n", s.Resources, s.Bytes, cli.Printable(args[0]))
				return err
			})
		},
	}
	addAllowEmpty(cmd, &allowEmpty)
	return cmd
}

// exportFile writes a temporary file next to the target and renames it, so that no reader finds a partial export.
func exportFile(ctx context.Context, b storage.Backend, name string) (s *migrate.Summary, err error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // incomplete, so useless
		}
	}()
	s, err = migrate.Export(ctx, b, f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return s, os.Rename(f.Name(), name)
}

// ImportCommand returns the import command.
func ImportCommand(a *cli.App) *cobra.Command {
	var f migrateFlags
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Load an exported file into a store",
		Long: `Load an exported file into a store. The file, - for standard input, is first read to its end and checked: a file that was modified or
truncated is rejected before anything is written. The store must be empty, unless --merge, --overwrite or --mirror decides about its
contents. An interrupted import continues with --mirror.`,
		Example: "  ashlar import store.ashlar --store postgres://db.example/app",
		Args:    cli.ExactArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := f.options()
			if err != nil {
				return err
			}
			in, done, err := openSeekable(a, args[0])
			if err != nil {
				return err
			}
			defer done()
			if err := checkExport(cmd.Context(), in); err != nil {
				return fmt.Errorf("import: %w", err)
			}
			return a.OnStore(cmd, cli.Create, func(ctx context.Context, b storage.Backend) error {
				show := newReporter(a, f.json)
				o.Progress = show.progress
				o.From, o.To = args[0], "the store"
				r, err := migrate.Import(ctx, in, b, o)
				show.end()
				if err != nil {
					return chooseContents(err)
				}
				return show.result(r, o)
			})
		},
	}
	f.addTargetFlags(cmd)
	return cmd
}

// checkExport reads an export to its end before a store is opened, so that a damaged file creates none.
func checkExport(ctx context.Context, in io.ReadSeeker) error {
	if _, err := migrate.Check(ctx, in); err != nil {
		return err
	}
	_, err := in.Seek(0, io.SeekStart)
	return err
}

// openSeekable opens a file for repeated reads. It copies standard input to a temporary file.
func openSeekable(a *cli.App, name string) (io.ReadSeeker, func(), error) {
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, nil, cli.Failedf("import: %w", err)
		}
		return f, func() { _ = f.Close() }, nil // read-only
	}
	f, err := os.CreateTemp("", "ashlar-import-*")
	if err != nil {
		return nil, nil, cli.Failedf("import: %w", err)
	}
	done := func() {
		_ = f.Close()
		_ = os.Remove(f.Name())
	}
	_, err = io.Copy(f, a.In)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		done()
		return nil, nil, cli.Failedf("import: copy the input: %w", err)
	}
	return f, done, nil
}
