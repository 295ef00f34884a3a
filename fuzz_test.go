package storage_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/ashlar-dev/storage"
)

// An error of Open never contains the password of a URL, however malformed the URL is.
func FuzzOpen(f *testing.F) {
	f.Add("known://user:", "", "@host/path")
	f.Add("known://user:", "%zz", "@host/path")
	f.Add("known://user:", " ", "@host")
	f.Add("known://user:", "#", "@host")
	f.Add("unknown://user:", "", "@host")
	f.Add("user:", "", "@host/path")
	f.Add("", ":", "//host")
	f.Fuzz(func(t *testing.T, before, inside, after string) {
		const secret = "hunter2hunter2"
		var mux storage.Mux
		mux.Register("known", func(context.Context, *url.URL) (storage.Backend, error) { return nil, nil })
		_, err := mux.Open(context.Background(), before+secret+inside+after)
		if err == nil {
			return
		}
		if !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("Open returned %v, expected ErrInvalid", err)
		}
		// Without a colon before it, the secret is part of the scheme, which errors contain.
		if strings.Contains(before, ":") && strings.Contains(err.Error(), secret) {
			t.Errorf("the error contains the password: %v", err)
		}
	})
}
