package moved

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/migrate"
)

// Among returns a Resolve that opens the store whose URL has the target's name. The error of a move contains no credentials, so the URLs must. The tool that moves the store must use the same host, path and parameters.
func Among(urls ...string) Resolve {
	return func(ctx context.Context, to *storage.MovedError) (storage.Backend, error) {
		name, _, _ := strings.Cut(to.Target, " (store ") // the tool appends the beginning of the target's identity
		for _, rawURL := range urls {
			if migrate.Name(rawURL) == name {
				return storage.Open(ctx, existing(rawURL))
			}
		}
		return nil, fmt.Errorf("%w: the URL of %s is unknown", storage.ErrInvalid, name)
	}
}

// existing returns a URL that opens a store only if it exists. The tool has created the target of a move, so without it the URL leads elsewhere.
func existing(rawURL string) string {
	u, err := url.Parse(rawURL)
	var query url.Values
	if err == nil {
		query, err = url.ParseQuery(u.RawQuery)
	}
	if err != nil || query.Has("create") {
		return rawURL // Open describes a malformed URL without its credentials
	}
	query.Set("create", "off")
	u.RawQuery = query.Encode()
	return u.String()
}
