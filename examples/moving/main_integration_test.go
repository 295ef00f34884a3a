//go:build integration

package main

import (
	"bufio"
	"context"
	"io"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/migrate"
)

func TestMain(m *testing.M) { env.Main(m) }

// TestFollow moves the store of the running program from SQLite to DynamoDB and to Postgres. The program prints every number once and in
// order.
func TestFollow(t *testing.T) {
	t.Parallel()
	chain := []string{"sqlite://" + filepath.Join(t.TempDir(), "store.db"), env.DynamoDB(t).StoreURL(t), env.Postgres(t).StoreURL(t)}
	ctx, cancel := context.WithCancel(fixture.Context(t))
	defer cancel()
	read, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		// A move ends only if it is faster than the writes, also on a busy machine.
		err := run(ctx, out, 10*time.Millisecond, chain...)
		_ = out.CloseWithError(err)
		ended <- err
	}()
	defer read.Close()
	numbers := bufio.NewScanner(read)
	last := 0
	advance := func(by int) {
		t.Helper()
		for end := last + by; last < end; {
			if !numbers.Scan() {
				t.Fatalf("the program ended after %d: %v", last, numbers.Err())
			}
			if n, err := strconv.Atoi(numbers.Text()); err != nil || n != last+1 {
				t.Fatalf("%q follows %d", numbers.Text(), last)
			}
			last++
		}
	}
	for i := range chain[1:] {
		advance(3)
		from, to := fixture.Open(t, chain[i]), fixture.Open(t, chain[i+1])
		moving := make(chan error, 1)
		go func() {
			_, err := migrate.Run(ctx, from, to, &migrate.Options{
				From: migrate.Name(chain[i]), To: migrate.Name(chain[i+1]), Live: true, CutoverLag: 10 * time.Second,
			})
			moving <- err
		}()
		for done := false; !done; advance(1) {
			select {
			case err := <-moving:
				if err != nil {
					t.Fatal(err)
				}
				done = true
			default:
			}
		}
		advance(3)
	}
	cancel()
	go func() { _, _ = io.Copy(io.Discard, read) }()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
