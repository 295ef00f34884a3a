package migrate

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// file is a SQLite store that a test closes, copies and restores.
type file struct {
	t    *testing.T
	path string
	storage.Backend
}

func openFile(t *testing.T, path string) *file {
	t.Helper()
	f := &file{t: t, path: path}
	f.open()
	t.Cleanup(f.close)
	return f
}

func (f *file) open() {
	f.t.Helper()
	b, err := storage.Open(f.t.Context(), "sqlite://"+f.path)
	if err != nil {
		f.t.Fatal(err)
	}
	f.Backend = b
}

func (f *file) close() {
	if err := f.Backend.Close(); err != nil {
		f.t.Error(err)
	}
}

// copyTo copies the store to another file.
func (f *file) copyTo(path string) {
	f.t.Helper()
	f.close()
	copyFile(f.t, f.path, path)
	f.open()
}

// restore replaces the store by an earlier copy.
func (f *file) restore(path string) {
	f.t.Helper()
	f.close()
	copyFile(f.t, path, f.path)
	f.open()
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// One side is restored from a backup that is older than a migration, which had closed the source. Neither Run nor Abort accepts the
// stores any more. ForceAbort releases both, and a new migration succeeds.
func TestRestoredDuringMigration(t *testing.T) {
	t.Parallel()
	for name, restoreSource := range map[string]bool{"the source": true, "the target": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			from, to := openFile(t, filepath.Join(folder, "from.db")), openFile(t, filepath.Join(folder, "to.db"))
			fill(t, from.Backend, []*resourcepb.Resource{small("a", "1")})
			backup := filepath.Join(folder, "backup.db")
			restored := to
			if restoreSource {
				restored = from
			}
			restored.copyTo(backup)
			tap := newTap()
			ctx, stop := context.WithCancel(limited(t))
			defer stop()
			tap.at = func(_ int, before bool, what string) error {
				if !before && what == "from fence" {
					stop()
				}
				return nil
			}
			options := quick(Options{From: "from", To: "to", Live: true, CutoverLag: time.Hour})
			if _, err := Run(ctx, &tapped{Backend: from.Backend, tap: tap, role: "from"}, to.Backend, options); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			restored.restore(backup)
			if _, err := Run(limited(t), from.Backend, to.Backend, options); err == nil {
				t.Fatal("the migration continued")
			}
			if err := Abort(limited(t), from.Backend, to.Backend); err == nil || !strings.Contains(err.Error(), "force the abort") {
				t.Fatalf("aborting: got %v, expected an error that explains how to force it", err)
			}
			if err := ForceAbort(limited(t), from.Backend, to.Backend); err != nil {
				t.Fatal(err)
			}
			write(t, from.Backend, small("b", "1"))
			options.Into = Mirror
			if r, err := Run(limited(t), from.Backend, to.Backend, options); err != nil || r.Phase != Complete {
				t.Fatalf("a new migration: %+v, %v", r, err)
			}
			wantEqual(t, from.Backend, to.Backend)
			if err := ForceAbort(limited(t), from.Backend, to.Backend); !errors.Is(err, storage.ErrInvalid) {
				t.Errorf("aborting a complete migration: got %v, expected ErrInvalid", err)
			}
		})
	}
}

// A copied file has the identity of its original, so no migration between the two begins. NewIdentity separates them.
func TestNewIdentityOfACopy(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	from := openFile(t, filepath.Join(folder, "from.db"))
	fill(t, from.Backend, []*resourcepb.Resource{small("a", "1")})
	if _, err := Run(limited(t), from.Backend, fixture.Open(t, "mem://"), quick(Options{})); err != nil { // gives it an identity
		t.Fatal(err)
	}
	from.copyTo(filepath.Join(folder, "copy.db"))
	write(t, from.Backend, small("b", "1"))
	to := openFile(t, filepath.Join(folder, "copy.db"))
	options := quick(Options{Into: Mirror, Live: true, CutoverLag: time.Hour})
	if _, err := Run(limited(t), from.Backend, to.Backend, options); !errors.Is(err, storage.ErrInvalid) {
		t.Fatalf("from a store to its copy: got %v, expected ErrInvalid", err)
	}
	if err := NewIdentity(limited(t), to.Backend); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(limited(t), from.Backend, to.Backend, options); err != nil {
		t.Fatal(err)
	}
	wantEqual(t, from.Backend, to.Backend)
}

// The target of an unfinished migration keeps its identity, which the source's fence contains.
func TestNewIdentityDuringMigration(t *testing.T) {
	t.Parallel()
	from, to := fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
	ctx, stop := context.WithCancel(limited(t))
	defer stop()
	if _, err := Run(ctx, from, to, quick(Options{Live: true, Progress: func(p Progress) {
		if p.Phase == Following {
			stop()
		}
	}})); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := NewIdentity(limited(t), to); !errors.Is(err, ErrBusy) {
		t.Errorf("got %v, expected ErrBusy", err)
	}
	if err := Abort(limited(t), from, to); err != nil {
		t.Fatal(err)
	}
	if err := NewIdentity(limited(t), to); err != nil {
		t.Error(err)
	}
}
