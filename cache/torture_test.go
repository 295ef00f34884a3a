package cache_test

import (
	"context"
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cache"
	"github.com/ashlar-dev/storage/conformance/faults"
	"github.com/ashlar-dev/storage/internal/test/torture"
)

// These schemes open caches by URL, for handles in other processes.
func init() {
	for _, scheme := range []string{"mem", "sqlite", "postgres", "etcd", "dynamodb"} {
		storage.Register("cached-"+scheme, func(ctx context.Context, u *url.URL) (storage.Backend, error) {
			backend, err := storage.Open(ctx, strings.TrimPrefix(u.String(), "cached-"))
			if err != nil {
				return nil, err
			}
			cached, err := cache.New(ctx, backend, nil)
			if err != nil {
				return nil, errors.Join(err, backend.Close())
			}
			return cached, nil
		})
	}
}

// TestTortureOverMemory discards the history all the time, so that the copy must list the store again.
func TestTortureOverMemory(t *testing.T) {
	t.Parallel()
	torture.Run(t, "cache over memory", tortureOverMemory)
}

func tortureOverMemory(t *testing.T, o faults.Options) {
	const store = "mem://cache-faults"
	h := faults.Harness{
		Open:   torture.Opener("cached-" + store),
		Around: torture.Opener(store),
		Faults: []faults.Fault{torture.Compact(torture.Reopen(store+"?history=1", store+"?history=100000"))},
	}
	for _, kind := range faults.Kinds() {
		if kind != faults.Compact {
			torture.Exempt(&h, "the store is memory of this process: it has no connection, and it ends with the process", kind)
		}
	}
	faults.Test(t, h, o)
}

// TestTortureOverSQLite runs several processes, each with a cache, on one file. It kills and stops processes and discards the history.
func TestTortureOverSQLite(t *testing.T) {
	t.Parallel()
	torture.Run(t, "cache over sqlite", tortureOverSQLite)
}

func tortureOverSQLite(t *testing.T, o faults.Options) {
	file := "sqlite://" + filepath.ToSlash(filepath.Join(t.TempDir(), "torture.db"))
	processes := faults.NewProcesses("cached-" + file)
	h := faults.Harness{Open: processes.Open, Around: torture.Opener(file), Faults: processes.Faults()}
	torture.Exempt(&h, "there is no connection", faults.Cut, faults.Delay, faults.Throttle, faults.LoseAnswer)
	torture.Exempt(&h, "the processes that use the file are the only servers",
		faults.Pause, faults.KillServer, faults.CrashSession, faults.Restart, faults.StandbyAway, faults.QuorumAway, faults.ChangeLeader)
	torture.Exempt(&h, "all processes use the host's clock", faults.SkewClock)
	torture.Exempt(&h, "the disk is the host's", faults.StallDisk, faults.FillDisk)
	h.Faults = append(h.Faults, torture.Compact(func(ctx context.Context) error { return forgetLog(ctx, file) }))
	faults.Test(t, h, o)
}

// forgetLog moves the file's horizon as far as pruning may.
func forgetLog(ctx context.Context, file string) error {
	db, err := sqlite3.Open(strings.TrimPrefix(file, "sqlite://"))
	if err != nil {
		return err
	}
	defer db.Close()
	for {
		if err := db.BusyTimeout(time.Minute); err != nil { // the process that holds the lock may be frozen
			return err
		}
		err = db.Exec(`UPDATE meta SET (followed, horizon) = (SELECT max(seq), max(seq) FROM log)`)
		if err == nil || ctx.Err() != nil || !errors.Is(err, sqlite3.BUSY) {
			return err
		}
	}
}
