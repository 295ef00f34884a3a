package bboltstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// file is an open file. All handles of the process share it, because bbolt locks the file against a second open.
type file struct {
	path    string
	db      *bolt.DB
	id      driver.StoreID
	handles int                           // number of handles; guarded by filesMu
	writer  chan struct{}                 // full during a write transaction; unlike bbolt's lock, the wait for it can be cancelled
	movedCh atomic.Pointer[chan struct{}] // closed by the next commit
}

// files contains the open ones by absolute path.
var (
	filesMu sync.Mutex
	files   = map[string]*file{}
)

// share returns the file at path, and opens it for the first handle. timeout bounds the wait for another process if ctx has no deadline.
func share(ctx context.Context, path string, timeout time.Duration) (*file, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	filesMu.Lock()
	defer filesMu.Unlock()
	f := files[path]
	if f == nil {
		f = &file{path: path, writer: make(chan struct{}, 1)}
		f.movedCh.Store(new(make(chan struct{})))
		if err := f.open(ctx, timeout); err != nil {
			return nil, err
		}
		files[path] = f
	}
	f.handles++
	return f, nil
}

func (f *file) release() error {
	filesMu.Lock()
	defer filesMu.Unlock()
	if f.handles--; f.handles > 0 {
		return nil
	}
	delete(files, f.path)
	return f.db.Close() // waits for transactions
}

func (f *file) open(ctx context.Context, wait time.Duration) (err error) {
	if deadline, ok := ctx.Deadline(); ok {
		wait = max(1, time.Until(deadline))
	}
	f.db, err = bolt.Open(f.path, 0o600, &bolt.Options{Timeout: wait, FreelistType: bolt.FreelistMapType})
	if errors.Is(err, berrors.ErrTimeout) {
		return fmt.Errorf("%w: another process has the file open", storage.ErrInconsistent)
	}
	if err != nil {
		return err
	}
	if err := f.db.Update(f.prepare); err != nil {
		return errors.Join(err, f.db.Close())
	}
	return nil
}

// prepare reads the id of the store, or creates the store.
func (f *file) prepare(tx *bolt.Tx) error {
	if b := tx.Bucket(storeBucket); b != nil {
		copy(f.id[:], b.Get([]byte("id")))
		if got := b.Get([]byte("format")); string(got) != format {
			return fmt.Errorf("%w: the file has format %q, this program supports %q", storage.ErrNewerSchema, got, format)
		}
		return nil
	}
	for _, name := range [][]byte{storeBucket, resourcesBucket, childrenBucket, logBucket} {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	_, _ = rand.Read(f.id[:]) // it never fails
	store, log := tx.Bucket(storeBucket), tx.Bucket(logBucket)
	return cmp.Or(
		store.Put([]byte("format"), []byte(format)),
		store.Put([]byte("id"), f.id[:]),
		log.Put(encodeNumber(after(0)), nil), // no change, but the point after which history begins
		log.SetSequence(1),
	)
}

// wakeReaders wakes the readers that wait for a change. Only the writer calls it.
func (f *file) wakeReaders() { close(*f.movedCh.Swap(new(make(chan struct{})))) }

// view runs a read transaction.
func (f *file) view(read func(tx *bolt.Tx) error) error { return ended(f.db.View(read)) }

// ended converts the error of a call that found the file closed by the last handle.
func ended(err error) error {
	if errors.Is(err, berrors.ErrDatabaseNotOpen) {
		return storage.ErrClosed
	}
	return err
}
