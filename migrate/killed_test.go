package migrate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// child is the process that TestKilled kills: it continues a migration and reports its progress.
func child() bool {
	from, to := os.Getenv("ASHLAR_TEST_MIGRATE_FROM"), os.Getenv("ASHLAR_TEST_MIGRATE_TO")
	if from == "" {
		return false
	}
	err := func() error {
		ctx := context.Background()
		source, err := storage.Open(ctx, from)
		if err != nil {
			return err
		}
		target, err := storage.Open(ctx, to)
		if err != nil {
			return err
		}
		o := quick(Options{Live: true, PageSize: 20, Batch: 5, Parallel: 2})
		if os.Getenv("ASHLAR_TEST_MIGRATE_CUTOVER") != "" {
			o.CutoverLag = time.Hour
		}
		o.Progress = func(p Progress) { fmt.Println(p.Phase) }
		_, err = Run(ctx, source, target, o)
		return errors.Join(err, source.Close(), target.Close())
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

// TestKilled kills the process of a live migration in every phase, at random moments, and continues with a new one. At the end
// the target contains exactly the acknowledged writes. A watch on the source has returned all of them, and the events of a watch on
// the target lead to the target's final contents.
func TestKilled(t *testing.T) {
	t.Parallel()
	killed(t, "sqlite://"+filepath.Join(t.TempDir(), "from.db"), "sqlite://"+filepath.Join(t.TempDir(), "to.db"), 4)
}

func killed(t *testing.T, from, to string, writers int) {
	source := fixture.Open(t, from)
	fill(t, source, zoo(300))
	target := fixture.Open(t, to)
	before, after := observe(t, source), observe(t, target)
	load := startWriters(t, writers, func() storage.Backend { return fixture.Open(t, from) })
	load.awaitWrites(t, 20)
	for _, phase := range []Phase{Copying, Copying, Following, Following, Cutover, Cutover, Complete} {
		cmd := exec.CommandContext(limited(t), os.Args[0])
		cmd.Env = append(os.Environ(), "ASHLAR_TEST_MIGRATE_FROM="+from, "ASHLAR_TEST_MIGRATE_TO="+to)
		if phase == Cutover || phase == Complete {
			cmd.Env = append(cmd.Env, "ASHLAR_TEST_MIGRATE_CUTOVER=1")
			load.slowDown()
		}
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		killed := false
		for lines := bufio.NewScanner(out); lines.Scan(); {
			at := Phase(lines.Text())
			if killed || phase == Complete || at == Copying && phase != Copying || at == Following && phase == Cutover {
				continue
			}
			moment := rand.IntN(100) //nolint:gosec // any moment will do
			t.Logf("killing it in phase %s after %d more writes", at, moment)
			load.awaitWritesOrEnd(moment)
			if err := cmd.Process.Kill(); err != nil {
				t.Log(err) // it had finished already
			}
			killed = true
		}
		if err := cmd.Wait(); err != nil && !killed {
			t.Fatalf("%v: %s", err, stderr.String())
		}
	}
	if s, err := ReadStatus(limited(t), target); err != nil || s == nil || s.Phase != Complete {
		t.Fatalf("it did not finish: %+v, %v", s, err)
	}
	load.check(t, target)
	wantEqual(t, source, target)
	before.wantTrail(t, load.all)
	after.wantState(t, target)
}
