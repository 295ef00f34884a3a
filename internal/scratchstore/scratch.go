// Package scratchstore creates temporary stores in databases that also contain other stores, and deletes them completely. Each adapter
// registers its implementation.
//
// The package is internal because it deletes whole stores. A Space deletes only stores that it has named itself.
package scratchstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/ashlar-dev/storage"
)

// Space is a set of temporary stores in a database.
type Space struct {
	// Location describes the place for users, for example "the schemas ashlar_x_…".
	Location string

	// Store returns the URL of a store by its number. The store exists once it is opened.
	Store func(number int) *url.URL

	// Drop deletes all existing stores of the space. No store may be open. After storage.ErrInconsistent, it can be retried.
	Drop func(ctx context.Context) error

	// Requests are byte sequences that identify writes: each request that may change a resource contains one of them. It is nil if
	// such a request contains the name of the resource.
	Requests []string
}

// Maker creates a space with an unused name in the database of u. The stores have the parameters of u, except those that name the
// store or forbid its creation.
type Maker = func(u *url.URL, name string) (*Space, error)

var makers = map[string]Maker{}

// Register registers the maker of an adapter. It is called from an adapter's init function.
func Register(maker Maker, schemes ...string) {
	for _, scheme := range schemes {
		makers[scheme] = maker
	}
}

// New returns a space in the database of the store at rawURL. It does not touch that store. An invalid URL is storage.ErrInvalid.
func New(rawURL, purpose string) (*Space, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("%w: malformed URL", storage.ErrInvalid) // the error contains the URL and its password
	}
	if strings.Contains(rawURL, "#") {
		return nil, fmt.Errorf("%w: a store's URL has no fragment (write %%23 for a # in it)", storage.ErrInvalid)
	}
	maker := makers[u.Scheme]
	if maker == nil {
		return nil, fmt.Errorf("%w: unknown scheme %q of a store's URL, expected one of %s", storage.ErrInvalid, u.Scheme, strings.Join(slices.Sorted(maps.Keys(makers)), ", "))
	}
	return maker(u, "ashlar_"+purpose+"_"+strings.ToLower(rand.Text()[:8]))
}
