//go:build integration

package postgres

import (
	"context"
	"net/url"
	"time"
)

// OpenForgetful opens the store of a URL with a shorter retention than operators may set.
func OpenForgetful(ctx context.Context, rawURL string, retention time.Duration) (*Backend, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	t, err := parseURL(u)
	if err != nil {
		return nil, err
	}
	t.opts.forgetful = retention
	return t.open(ctx)
}
