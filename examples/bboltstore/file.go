package bboltstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// The buckets, and the format of what is in them.
var (
	storeBucket     = []byte("store")
	resourcesBucket = []byte("resources")
	childrenBucket  = []byte("children")
	logBucket       = []byte("log")
	format          = []byte{1}
)

// file is an open file, which all handles of the process share: bbolt lets nobody open it a second time.
type file struct {
	path    string
	handles int           // how many share it; guarded by shared
	writer  chan struct{} // full while a write transaction is under way; unlike bbolt's lock, waiting for it can be given up

	mu    sync.Mutex
	db    *bolt.DB
	id    driver.StoreID
	moved chan struct{} // closed by the next commit
}

// shared has the open files by absolute path.
var shared = struct {
	sync.Mutex
	files map[string]*file
}{files: map[string]*file{}}

func acquire(ctx context.Context, path string, o *Options) (*file, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	shared.Lock()
	f := shared.files[path]
	if f == nil {
		f = &file{path: path, writer: make(chan struct{}, 1), moved: make(chan struct{})}
		shared.files[path] = f
	}
	f.handles++
	shared.Unlock()
	if err := f.open(ctx, o); err != nil {
		return nil, errors.Join(err, f.release())
	}
	return f, nil
}

func (f *file) release() error {
	shared.Lock()
	f.handles--
	last := f.handles == 0
	if last {
		delete(shared.files, f.path)
	}
	shared.Unlock()
	if !last || f.db == nil {
		return nil
	}
	return f.db.Close() // waits for transactions
}

func (f *file) open(ctx context.Context, o *Options) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.db != nil {
		return nil
	}
	wait := o.Timeout
	if deadline, ok := ctx.Deadline(); ok {
		wait = max(1, time.Until(deadline))
	}
	db, err := bolt.Open(f.path, 0o600, &bolt.Options{Timeout: wait, FreelistType: bolt.FreelistMapType,
		OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
			if o.NoCreate {
				flag &^= os.O_CREATE
			}
			return os.OpenFile(name, flag, mode)
		}})
	if errors.Is(err, berrors.ErrTimeout) {
		return fmt.Errorf("%w: another process has the file open", storage.ErrInconsistent)
	}
	if err != nil {
		return err
	}
	if err := f.prepare(db, o); err != nil {
		return errors.Join(err, db.Close())
	}
	f.db = db
	return nil
}

// prepare reads the id of the store, or makes the store.
func (f *file) prepare(db *bolt.DB, o *Options) error {
	tx, err := db.Begin(true)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing is left to roll back after Commit
	if b := tx.Bucket(storeBucket); b != nil {
		copy(f.id[:], b.Get([]byte("id")))
		if got := b.Get([]byte("format")); string(got) != string(format) {
			return fmt.Errorf("%w: the file has format %d, the program knows %d", storage.ErrNewerSchema, got, format)
		}
		return nil
	}
	if o.NoCreate {
		return fmt.Errorf("%w: the file holds no store, and create is off", storage.ErrInvalid)
	}
	for _, name := range [][]byte{storeBucket, resourcesBucket, childrenBucket, logBucket} {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	_, _ = rand.Read(f.id[:]) // it never fails
	return errors.Join(tx.Bucket(storeBucket).Put([]byte("format"), format), tx.Bucket(storeBucket).Put([]byte("id"), f.id[:]),
		foundLog(tx), tx.Commit())
}

// committed tells those who wait that there is something new.
func (f *file) committed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.moved)
	f.moved = make(chan struct{})
}

// next returns a channel that the next commit closes.
func (f *file) next() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.moved
}

// view runs a read transaction.
func (f *file) view(what string, read func(tx *bolt.Tx) error) error {
	return failed(what, f.db.View(read))
}

// failed says what was tried. The file is closed when the last handle is.
func failed(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, berrors.ErrDatabaseNotOpen):
		return storage.ErrClosed
	}
	return fmt.Errorf("%s: %w", what, err)
}
