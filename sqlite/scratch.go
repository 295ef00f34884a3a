package sqlite

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"github.com/ashlar-dev/storage/internal/scratchstore"
)

func init() { scratchstore.Register(newScratch, "sqlite") }

// newScratch makes a folder beside the file of u, on the same disk, for files.
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
