package bboltstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/backend"
)

func init() { storage.Register("bbolt", openURL) }

// Options are the settings of a handle. The zero value of each field means its default.
type Options struct {
	// MaxSize is the size limit of a resource in bytes. The default is 1 MiB, which is also the maximum.
	MaxSize int
	// Timeout bounds calls whose context has no deadline, and the wait for another process to close the file. The default is 30
	// seconds.
	Timeout time.Duration
	// History is the number of changes that the file keeps for resumed watches. The default is 100,000.
	History int
}

// Backend is an opened store. Besides storage.Backend it is a storage.Pager, storage.Resumer and storage.Transactor, and its
// watches are storage.Bookmarkers.
type Backend struct{ *backend.Backend[uint64] }

// Open opens the store in the file at path, and creates it if it does not exist. Nil options are the defaults. If another process
// has the file open for longer than the timeout, the error matches storage.ErrInconsistent.
func Open(path string, o *Options) (*Backend, error) {
	return open(context.Background(), path, o)
}

func open(ctx context.Context, path string, o *Options) (*Backend, error) {
	var opts Options
	if o != nil {
		opts = *o
	}
	opts.Timeout, opts.History = cmp.Or(opts.Timeout, backend.DefaultTimeout), cmp.Or(opts.History, 100_000)
	f, err := share(ctx, path, opts.Timeout)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	s := &store{file: f, history: opts.History, listings: listings{open: map[[16]byte]*listing{}}}
	s.closed, s.close = context.WithCancelCause(context.Background())
	return &Backend{backend.New(s, backend.Options[uint64]{MaxSize: opts.MaxSize, Timeout: opts.Timeout, BoundedGet: true})}, nil
}

// openURL opens bbolt:relative/path or bbolt:/absolute/path, with the parameters that every adapter has, and history.
func openURL(ctx context.Context, u *url.URL) (storage.Backend, error) {
	path, err := url.PathUnescape(u.Opaque)
	path += u.Path // one of them is empty
	query, malformed := url.ParseQuery(u.RawQuery)
	if err = errors.Join(err, malformed); err == nil && (path == "" || u.Host != "" || u.User != nil) {
		err = errors.New("expected bbolt:relative/path or bbolt:/absolute/path, and parameters as ?name=value")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the URL of a bbolt store: %w", storage.ErrInvalid, err)
	}
	var o Options
	for name := range query {
		switch value := query.Get(name); name {
		case "timeout":
			o.Timeout, err = time.ParseDuration(value)
		case "max-size":
			o.MaxSize, err = strconv.Atoi(value)
		case "history":
			o.History, err = strconv.Atoi(value)
		case "create":
			if value == "off" {
				if _, err = os.Stat(path); err != nil { // otherwise bbolt creates the file
					return nil, fmt.Errorf("%w: %w, and create=off forbids creating it", storage.ErrNoStore, err)
				}
			} else if value != "on" {
				err = errors.New("expected on or off")
			}
		default:
			err = errors.New("unknown, expected timeout, max-size, history or create")
		}
		if err == nil && min(int64(o.Timeout), int64(o.MaxSize), int64(o.History)) < 0 {
			err = errors.New("less than 0")
		}
		if err != nil {
			return nil, fmt.Errorf("%w: parameter %q: %w", storage.ErrInvalid, name, err)
		}
	}
	b, err := open(ctx, path, &o)
	if err != nil {
		return nil, err // not b: a nil *Backend is not a nil storage.Backend
	}
	return b, nil
}

// store is one handle as a driver.
type store struct {
	*file
	history int             // number of changes that the log keeps
	closed  context.Context // cancelled when the handle is closed
	close   context.CancelCauseFunc

	listings listings
}

var (
	_ driver.Driver[uint64]      = (*store)(nil)
	_ driver.Pager[uint64]       = (*store)(nil)
	_ driver.Snapshotter[uint64] = (*store)(nil)
)

// StoreID implements driver.Driver.
func (s *store) StoreID() driver.StoreID { return s.id }

// Source implements driver.Driver.
func (s *store) Source() driver.Source[uint64] { return source{file: s.file} }

// Close implements driver.Driver.
func (s *store) Close() error {
	s.close(storage.ErrClosed)
	s.listings.close()
	return s.release()
}
