package sqlite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/backend"
)

// Backend is an opened SQLite file. It implements storage.Backend, storage.Pager, storage.Resumer and storage.Transactor, and its
// watches are storage.Bookmarkers and storage.Recallers. storage.As finds its storage.Historian.
type Backend struct {
	*backend.Backend[mark]
	handle *handle
}

var (
	_ storage.Backend    = (*Backend)(nil)
	_ storage.Pager      = (*Backend)(nil)
	_ storage.Resumer    = (*Backend)(nil)
	_ storage.Transactor = (*Backend)(nil)
)

// New opens the store in a file, and creates it if it is not there. The context bounds the opening only.
func New(ctx context.Context, path string, options *Options) (*Backend, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s := &handle{options: options.withDefaults()}
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.options.Timeout)
		defer cancel()
	}
	if err := s.open(ctx, path); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return &Backend{
		Backend: backend.New(s, backend.Options[mark]{
			MaxSize:    s.options.MaxSize,
			MaxOps:     maxOps,
			Timeout:    s.options.Timeout,
			BoundedGet: true, // a look-up is over sooner than a timer is set; where it has to wait, the busy timeout bounds it
			Outage:     s.options.Outage,
			Linger:     10 * time.Second,
		}),
		handle: s,
	}, nil
}

// handle is an opened file as a driver.
type handle struct {
	path    string
	options Options
	id      driver.StoreID
	side    *sideFile
	readers *pool
	writer  *writer
	source  *source
}

var (
	_ driver.Driver[mark] = (*handle)(nil)
	_ driver.GuardedMover = (*handle)(nil)
	_ driver.BulkReader   = (*handle)(nil)
)

// StoreID implements driver.Driver.
func (s *handle) StoreID() driver.StoreID { return s.id }

// Source implements driver.Driver.
func (s *handle) Source() driver.Source[mark] { return s.source }

func (s *handle) open(ctx context.Context, path string) (err error) {
	if s.path, err = locate(path); err != nil {
		return err
	}
	if err := examine(s.path, !s.options.NoCreate); err != nil {
		return err
	}
	if s.side, err = openSideFile(s.path); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.side.file.Close())
		}
	}()
	flags := sqlite3.OPEN_READWRITE
	if !s.options.NoCreate {
		flags |= sqlite3.OPEN_CREATE
	}
	c, err := connect(ctx, s.path, s.options.vfs, role{flags: flags, cache: 16 << 10, busy: s.options.Timeout})
	if err != nil {
		return failed(ctx, "connect", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	if err := s.setUp(ctx, c); err != nil {
		return failed(ctx, "set up", err)
	}
	s.readers = newPool(s.options.Readers, s.options.Timeout, func(ctx context.Context) (*conn, error) { return s.connectReader(ctx, 2<<10) })
	s.source = &source{handle: s}
	s.writer = newWriter(s, c)
	return nil
}

// setUp makes the first connection, which becomes the writer's, ready.
func (s *handle) setUp(ctx context.Context, c *conn) error {
	defer c.db.SetInterrupt(context.Background())
	if err := checkLibrary(c); err != nil {
		return err
	}
	if readOnly, _ := c.db.ReadOnly("main"); readOnly {
		return errors.New("the file is not writable")
	}
	id, err := c.prepare(ctx, s.side, !s.options.NoCreate)
	if err != nil {
		return err
	}
	s.id = id
	if err := c.assertDurable(); err != nil {
		return err
	}
	// The connection has read the file, so the -wal file is there, and stays until the last process has closed the store.
	return syncFolder(s.path)
}

// connectReader opens a connection that only reads, and that ctx interrupts.
func (s *handle) connectReader(ctx context.Context, cache int) (*conn, error) {
	c, err := connect(ctx, s.path, s.options.vfs, role{flags: sqlite3.OPEN_READWRITE, cache: cache, busy: s.options.Timeout})
	if err != nil {
		return nil, err
	}
	err = c.db.Exec("PRAGMA query_only = ON")
	if err == nil {
		err = c.assertDurable()
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// Close implements driver.Driver: waiting calls end, those under way are waited for.
func (s *handle) Close() error {
	return errors.Join(s.readers.close(), s.writer.close(), s.side.file.Close())
}
