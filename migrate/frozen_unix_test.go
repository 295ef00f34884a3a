//go:build unix

package migrate

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/freeze"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestFrozenProcess suspends the process of a live migration, completes the migration with another process, and resumes the first
// one.
func TestFrozenProcess(t *testing.T) {
	t.Parallel()
	for _, phase := range []Phase{Copying, Following} {
		t.Run(string(phase), func(t *testing.T) {
			t.Parallel()
			testFrozenProcess(t, "sqlite://"+filepath.Join(t.TempDir(), "from.db"), "sqlite://"+filepath.Join(t.TempDir(), "to.db"), phase)
		})
	}
}

func testFrozenProcess(t *testing.T, from, to string, phase Phase) {
	source, target := fixture.Open(t, from), fixture.Open(t, to)
	fill(t, source, zoo(300))
	load := startWriters(t, 2, func() storage.Backend { return fixture.Open(t, from) })
	load.awaitWrites(t, 20)
	cmd := exec.CommandContext(limited(t), os.Args[0])
	cmd.Env = append(os.Environ(), "ASHLAR_TEST_MIGRATE_FROM="+from, "ASHLAR_TEST_MIGRATE_TO="+to)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && Phase(lines.Text()) != phase {
	}
	wake := func() {
		t.Helper()
		if err := freeze.Wake(cmd.Process); err != nil {
			t.Fatal(err)
		}
	}
	for {
		load.awaitWrites(t, 10)
		if err := freeze.Stop(cmd.Process); err != nil {
			t.Fatal(err)
		}
		if usable(t, source) && usable(t, target) {
			break
		}
		wake() // it was in a transaction, which blocks other processes
	}
	load.awaitWrites(t, 50)
	if _, err := Run(limited(t), source, target, quick(Options{Live: true, CutoverLag: time.Hour})); err != nil {
		t.Fatal(err)
	}
	load.check(t, target)
	wantEqual(t, source, target)
	seen := observe(t, target)
	wake()
	for lines.Scan() {
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(stderr.String(), ErrSuperseded.Error()) {
		t.Errorf("the suspended process ended with %v: %s", err, stderr.String())
	}
	if fenceOf(t, source) == "" {
		t.Error("the suspended process has opened the source")
	}
	wantEqual(t, source, target)
	end := write(t, target, small("the-end", "1"))
	seen.wantOnly(t, end)
}

// usable reports whether a store accepts notes and writes of resources. A SQLite file does not while a suspended process is in a
// transaction, and accepts only notes while the process has the lock for writes of resources without a transaction.
func usable(t *testing.T, b storage.Backend) bool {
	t.Helper()
	probe := "probe-" + strings.Map(func(r rune) rune { return 'a' + r%26 }, rand.Text())
	within := func(call func(ctx context.Context) error) error {
		return call(fixture.CallTimeout(limited(t), t, 300*time.Millisecond))
	}
	err := within(func(ctx context.Context) error {
		_, err := moverOf(t, b).WriteNote(ctx, probe, nil, "")
		return err
	})
	if err == nil {
		err = within(func(ctx context.Context) error { return b.DeleteCAS(ctx, small(probe, "").Id, "") }) // nothing is stored
	}
	if errors.Is(err, storage.ErrFenced) {
		return true // it had its turn
	}
	if err != nil && !errors.Is(err, storage.ErrInconsistent) {
		t.Fatal(fmt.Errorf("probing: %w", err))
	}
	return err == nil
}
