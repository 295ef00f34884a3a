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
// watches are storage.Bookmarkers and history.Recallers. storage.As finds its history.Historian.
type Backend struct {
	*backend.Backend[position]
	handle *handle
}

var (
	_ storage.Backend    = (*Backend)(nil)
	_ storage.Pager      = (*Backend)(nil)
	_ storage.Resumer    = (*Backend)(nil)
	_ storage.Transactor = (*Backend)(nil)
)

// New opens the store in a file and creates it if it does not exist. The context bounds the opening only.
func New(ctx context.Context, path string, options *Options) (*Backend, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	o := options.withDefaults()
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Timeout)
		defer cancel()
	}
	s, err := openHandle(ctx, path, o)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return &Backend{
		Backend: backend.New(s, backend.Options[position]{
			MaxSize:     o.MaxSize,
			MaxOps:      maxOps,
			Timeout:     o.Timeout,
			BoundedGet:  true, // a lookup takes less time than setting a timer, and the busy timeout bounds its waits
			Outage:      o.Outage,
			IdleTimeout: 10 * time.Second,
			Telemetry:   s.Recorder,
		}),
		handle: s,
	}, nil
}

// handle is an opened file. It implements driver.Driver; the embedded database provides the read methods.
type handle struct {
	*database
	id     driver.StoreID
	writer *writer
	source *source
}

var (
	_ driver.Driver[position]    = (*handle)(nil)
	_ driver.Historian[position] = (*handle)(nil)
	_ driver.GuardedMover        = (*handle)(nil)
	_ driver.Bulk                = (*handle)(nil)
)

// openHandle opens the file at path and starts its writer.
func openHandle(ctx context.Context, path string, options Options) (_ *handle, err error) {
	d, err := openDatabase(path, options)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.lockFile.file.Close())
		}
	}()
	defer func(empty bool) {
		if empty && errors.Is(err, sqlite3.IOERR_SHORT_READ) {
			err = deletedWAL(d.path, err)
		}
	}(emptyWAL(d.path))
	c, err := d.connect(ctx, 16<<10)
	if err != nil {
		return nil, statementError(ctx, "connect", err)
	}
	id, err := d.setUp(ctx, c)
	if err != nil {
		return nil, errors.Join(statementError(ctx, "set up", err), c.close())
	}
	s := &source{database: d}
	return &handle{database: d, id: id, writer: newWriter(d, s, c), source: s}, nil
}

// StoreID implements driver.Driver.
func (s *handle) StoreID() driver.StoreID { return s.id }

// Source implements driver.Driver.
func (s *handle) Source() driver.Source[position] { return s.source }

// Apply implements driver.Driver.
func (s *handle) Apply(ctx context.Context, mutations []driver.Mutation) error {
	return s.writer.apply(ctx, mutations)
}

// Close implements driver.Driver. It ends waiting calls and waits for running ones.
func (s *handle) Close() error {
	return errors.Join(s.readers.close(), s.writer.close(), s.lockFile.file.Close())
}

// Load implements driver.Bulk.
func (s *handle) Load(ctx context.Context, rows []driver.Row) error {
	mutations, err := driver.Creations(rows, s.options.MaxSize)
	if err != nil {
		return err
	}
	return s.Apply(ctx, mutations)
}
