package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// database is an opened file with its lock file and its reading connections.
type database struct {
	recorder
	path     string
	options  Options
	lockFile *lockFile
	files    storeFiles
	readers  *pool
}

// openDatabase checks the file at path, creates it if necessary, and opens its lock file. It opens no connection.
func openDatabase(path string, options Options) (*database, error) {
	path, err := resolvePath(path)
	if errors.Is(err, fs.ErrNotExist) && options.NoCreate {
		err = fmt.Errorf("%w: %w", storage.ErrNoStore, err)
	}
	if err != nil {
		return nil, err
	}
	id, err := checkFile(path, !options.NoCreate)
	if err != nil {
		return nil, err
	}
	if target, err := resolvePath(path); err == nil && target != path { // checkFile has created the target of a link
		return openDatabase(target, options)
	}
	lock, err := openLockFile(path)
	if err != nil {
		return nil, err
	}
	d := &database{path: path, options: options, lockFile: lock, files: newStoreFiles(path, id)}
	d.readers = newPool(options.Readers, options.Timeout, func(ctx context.Context) (*conn, error) { return d.connectReader(ctx, 2<<10) })
	d.recorder.start(&options, path, func() (idle, open int) {
		return len(d.readers.free), cap(d.readers.slots) - len(d.readers.slots)
	})
	return d, nil
}

// connect opens a connection with a cache of that many KiB. ctx interrupts the connection.
func (d *database) connect(ctx context.Context, cache int) (*conn, error) {
	if err := d.files.check(); err != nil { // before SQLite creates missing files
		return nil, err
	}
	c, err := connect(ctx, d.path, d.options.vfs, role{cache: cache, busy: d.options.Timeout})
	if err != nil {
		return nil, err
	}
	c.files = &d.files
	if err := d.files.check(); err != nil { // after opening, because the path may have led to another file
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// connectReader opens a read-only connection. ctx interrupts the connection.
func (d *database) connectReader(ctx context.Context, cache int) (*conn, error) {
	c, err := d.connect(ctx, cache)
	if err != nil {
		return nil, err
	}
	err = c.db.Exec("PRAGMA query_only = ON")
	if err == nil {
		err = c.checkDurable()
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// read calls do with a reading connection. operation describes the call in errors.
func (d *database) read(ctx context.Context, operation string, do func(*conn) error) error {
	c, err := d.readers.take(ctx)
	if err != nil {
		return err
	}
	err = do(c)
	d.readers.give(c)
	if err != nil {
		return statementError(ctx, operation, err)
	}
	return nil
}

// writeOutsideBatch calls do in a write transaction of its own. SQLite's lock orders it among the writers of all
// processes.
func (d *database) writeOutsideBatch(ctx context.Context, operation string, do func(*conn) error) error {
	c, err := d.connect(ctx, 256)
	if err != nil {
		return statementError(ctx, operation, err)
	}
	err = c.checkDurable()
	if err == nil {
		err = c.exec("begin-immediate")
	}
	if err == nil {
		if err = d.files.check(); err == nil {
			err = do(c)
		}
		if err == nil {
			err = c.exec("commit")
		}
		if err != nil {
			err = errors.Join(err, c.endTransaction())
		} else if replaced := d.files.check(); replaced != nil { // the commit may be in a file that was replaced meanwhile
			err = fmt.Errorf("%w: %w", storage.ErrInconsistent, replaced)
		}
	}
	if err = errors.Join(err, c.close()); err != nil {
		return statementError(ctx, operation, err)
	}
	return nil
}

// inSnapshot calls do with a reading connection in one transaction.
func (d *database) inSnapshot(ctx context.Context, operation string, do func(*conn) error) error {
	return d.read(ctx, operation, func(c *conn) error { return c.inSnapshot(func() error { return do(c) }) })
}

// pool holds the reading connections. It opens each when it is first needed.
type pool struct {
	open    func(context.Context) (*conn, error)
	timeout time.Duration
	free    chan *conn
	slots   chan struct{} // a token for each connection not opened yet
	closed  chan struct{}

	start     time.Time    // of the pool
	lastCheck atomic.Int64 // nanoseconds from start to the beginning of the last successful check of the files
}

// checkInterval is the maximum age of a check of the files on which an eventual read relies. A check takes three system calls, which last about
// as long as the read.
const checkInterval = 100 * time.Millisecond

func newPool(size int, timeout time.Duration, open func(context.Context) (*conn, error)) *pool {
	p := &pool{
		open: open, timeout: timeout, free: make(chan *conn, size), slots: make(chan struct{}, size), closed: make(chan struct{}), start: time.Now(),
	}
	p.lastCheck.Store(-int64(checkInterval))
	for range size {
		p.slots <- struct{}{}
	}
	return p
}

// take returns a connection that ctx interrupts, after a check of the files. It waits until ctx ends or, without a deadline in ctx, for the
// pool's timeout. The caller must return the connection with give.
func (p *pool) take(ctx context.Context) (*conn, error) { return p.takeChecked(ctx, 0) }

// takeChecked is take for a read that may rely on an earlier check of the files, up to this age.
func (p *pool) takeChecked(ctx context.Context, age time.Duration) (*conn, error) {
	c, err := p.takeUnchecked(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Since(p.start)
	if now-time.Duration(p.lastCheck.Load()) < age { // with age 0, a check that another call has begun after now
		return c, nil
	}
	if err := c.files.check(); err != nil {
		p.lastCheck.Store(-int64(checkInterval))
		p.give(c)
		return nil, err
	}
	p.lastCheck.Store(int64(now))
	return c, nil
}

func (p *pool) takeUnchecked(ctx context.Context) (*conn, error) {
	select {
	case c := <-p.free:
		c.db.SetInterrupt(ctx)
		return c, nil
	default:
	}
	waiting := ctx
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, p.timeout)
		defer cancel()
	}
	select {
	case c := <-p.free:
		c.db.SetInterrupt(ctx)
		return c, nil
	case <-p.slots:
		c, err := p.open(waiting)
		if err != nil {
			p.slots <- struct{}{}
			return nil, statementError(waiting, "open another connection", err)
		}
		c.db.SetInterrupt(ctx)
		return c, nil
	case <-p.closed:
		return nil, storage.ErrClosed
	case <-waiting.Done():
		return nil, timeoutError(waiting)
	}
}

// give returns a connection to the pool. It ends an open transaction, which would show later users old data.
func (p *pool) give(c *conn) {
	if c.endTransaction() != nil {
		_ = c.close() // this ends the transaction too
		p.slots <- struct{}{}
		return
	}
	p.free <- c
}

// close waits for the connections in use and closes all connections. It must be called once.
func (p *pool) close() error {
	close(p.closed)
	var errs []error
	for range cap(p.free) {
		select {
		case c := <-p.free:
			errs = append(errs, c.close())
		case <-p.slots:
		}
	}
	return errors.Join(errs...)
}

// setUp prepares the first connection, which becomes the writer's, and returns the store's id.
func (d *database) setUp(ctx context.Context, c *conn) (id driver.StoreID, err error) {
	defer c.db.SetInterrupt(context.Background())
	if err := checkLibrary(c); err != nil {
		return id, err
	}
	if readOnly, _ := c.db.ReadOnly("main"); readOnly {
		return id, errors.New("the file is not writable")
	}
	if id, err = c.prepare(ctx, d.lockFile, !d.options.NoCreate); err != nil {
		return id, err
	}
	if err := c.checkDurable(); err != nil {
		return id, err
	}
	// The connection has read the file, so the -wal and -shm files exist and stay until the last process closes the
	// store.
	if err := d.files.recordShared(); err != nil {
		return id, err
	}
	if err := d.files.check(); err != nil {
		return id, err
	}
	return id, syncFolder(d.path)
}
