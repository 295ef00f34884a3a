package sqlite

import (
	"context"
	"fmt"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/params"
	"github.com/ashlar-dev/storage/internal/scratchstore"
	"github.com/ashlar-dev/storage/telemetry"
)

func init() {
	storage.Register("sqlite", func(ctx context.Context, u *url.URL) (storage.Backend, error) {
		b, err := Open(ctx, u)
		if err != nil {
			return nil, err // not b, a typed nil pointer
		}
		return b, nil
	})
}

// Open opens the store of a URL: sqlite:///absolute/path.db or sqlite:relative.db. README.md lists the parameters. The
// context bounds the opening only.
func Open(ctx context.Context, u *url.URL) (*Backend, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	path, options, err := parseURL(u)
	if err != nil {
		return nil, err
	}
	options.Telemetry = options.Telemetry.Or(telemetry.FromContext(ctx))
	return New(ctx, path, &options)
}

// parseURL returns the path and the options in a URL. README.md explains the parameters, and a test compares its table
// with this list.
func parseURL(u *url.URL) (string, Options, error) {
	path, err := pathOf(u)
	if err != nil {
		return "", Options{}, err
	}
	p := params.Parse(u)
	o := Options{
		NoCreate:       !p.OnOff("create", true),
		Timeout:        p.Duration("timeout", DefaultTimeout),
		Outage:         p.Duration("outage", DefaultOutage),
		MaxSize:        p.Int("max-size", 0, 1, driver.MaxSize),
		Retention:      p.DurationFrom("retention", DefaultRetention, driver.TokenLifetime),
		RetentionRows:  p.Int("retention-rows", DefaultRetentionRows, 1, 1<<30),
		RetentionBytes: p.Int("retention-bytes", DefaultRetentionBytes, 64<<20, math.MaxInt),
		Readers:        p.Int("readers", defaultReaders(), 1, 64),
		Telemetry:      telemetry.Options{Logger: p.Logger()},
	}
	return path, o, p.Err()
}

func pathOf(u *url.URL) (string, error) {
	if u.User != nil || u.Host != "" {
		return "", fmt.Errorf("%w: a sqlite URL must have no host: write sqlite:///absolute/path.db or sqlite:relative.db", storage.ErrInvalid)
	}
	path := u.Path
	if u.Opaque != "" {
		unescaped, err := url.PathUnescape(u.Opaque)
		if err != nil {
			return "", fmt.Errorf("%w: malformed path in a sqlite URL", storage.ErrInvalid)
		}
		path = unescaped
	}
	switch {
	case path == "" || strings.HasSuffix(path, "/"):
		return "", fmt.Errorf("%w: the sqlite URL has no file path: write sqlite:///absolute/path.db or sqlite:relative.db", storage.ErrInvalid)
	case path == ":memory:":
		return "", fmt.Errorf("%w: for a store in memory write mem://", storage.ErrInvalid)
	case strings.IndexByte(path, 0) >= 0:
		return "", fmt.Errorf("%w: the path in the sqlite URL contains a NUL byte", storage.ErrInvalid)
	}
	return path, nil
}

func init() { scratchstore.Register(newScratch, "sqlite") }

// newScratch makes a folder for stores beside the file of u, on the same disk.
func newScratch(u *url.URL, name string) (*scratchstore.Space, error) {
	path, _, err := parseURL(u)
	if err != nil {
		return nil, err
	}
	folder := path + "." + name
	if err := os.Mkdir(folder, 0o700); err != nil {
		return nil, fmt.Errorf("make a folder beside the database: %w", err)
	}
	return &scratchstore.Space{
		Location: "the folder " + folder,
		Store: func(number int) *url.URL {
			file := filepath.ToSlash(filepath.Join(folder, fmt.Sprint(number, ".db")))
			query := u.Query()
			query.Del("create")
			other := &url.URL{Scheme: "sqlite", Path: file, RawQuery: query.Encode()}
			if !filepath.IsAbs(folder) {
				other.Opaque, other.Path = other.EscapedPath(), ""
			}
			return other
		},
		Drop: func(context.Context) error { return os.RemoveAll(folder) },
	}, nil
}
