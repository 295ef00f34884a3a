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

func ExportCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "export FILE",
		Short: "Write all of a store to a file",
		Long: `Write all of a store to a file, compressed and with a checksum: everything but the versions. FILE may be - for the standard
output. A file of that name is replaced once the export is complete, not before.`,
		Example: "  ashlar export store.ashlar\n  ashlar export - | ssh elsewhere ashlar import -",
		Args:    cli.ExactArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.OnStore(cmd, func(ctx context.Context, b storage.Backend) error {
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
}

// exportFile writes beside the file and renames, so that nobody finds half an export.
func exportFile(ctx context.Context, b storage.Backend, name string) (s *migrate.Summary, err error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // it is of no use to anybody
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

func ImportCommand(a *cli.App) *cobra.Command {
	var f migrateFlags
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Bring a file that export has written into a store",
		Long: `Bring a file that export has written into a store. The file, - for the standard input, is read to its end and checked first: one
that was altered or cut off is refused before anything is written. The store has to be empty, unless --merge, --overwrite or
--mirror says what becomes of what it holds. An import that was interrupted goes on with --mirror.`,
		Example: "  ashlar import store.ashlar --store postgres://db.example/app",
		Args:    cli.ExactArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := f.options()
			if err != nil {
				return err
			}
			return a.OnStore(cmd, func(ctx context.Context, b storage.Backend) error {
				in, done, err := openSeekable(a, args[0])
				if err != nil {
					return err
				}
				defer done()
				show := newReporter(a, f.json)
				o.Progress = show.progress
				o.From, o.To = args[0], "the store"
				r, err := migrate.Import(ctx, in, b, o)
				show.end()
				if err != nil {
					return err
				}
				return show.result(r, o)
			})
		},
	}
	f.addTargetFlags(cmd)
	return cmd
}

// openSeekable opens a file that can be read more than once: of the standard input it makes a copy.
func openSeekable(a *cli.App, name string) (io.ReadSeeker, func(), error) {
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, nil, cli.Failedf("import: %w", err)
		}
		return f, func() { _ = f.Close() }, nil // it was only read
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
