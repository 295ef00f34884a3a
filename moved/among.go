package moved

import (
	"context"
	"fmt"
	"strings"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/migrate"
)

// Among returns a Resolve that opens the store whose URL has the target's name. The error of a move contains no credentials, so the URLs must. The tool that moves the store must use the same host, path and parameters.
func Among(urls ...string) Resolve {
	return func(ctx context.Context, to *storage.MovedError) (storage.Backend, error) {
		name, _, _ := strings.Cut(to.Target, " (store ") // the tool appends the beginning of the target's identity
		for _, url := range urls {
			if migrate.Name(url) == name {
				return storage.Open(ctx, url)
			}
		}
		return nil, fmt.Errorf("%w: the URL of %s is unknown", storage.ErrInvalid, name)
	}
}
