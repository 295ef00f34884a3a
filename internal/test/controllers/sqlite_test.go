package controllers

import (
	"path/filepath"
	"testing"

	_ "github.com/ashlar-dev/storage/sqlite"
)

// TestFaultsSQLite has several processes on one file.
func TestFaultsSQLite(t *testing.T) {
	t.Parallel()
	trial{url: "sqlite://" + filepath.ToSlash(filepath.Join(t.TempDir(), "faults.db"))}.run(t)
}
