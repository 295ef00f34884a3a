// Package scratchstore makes stores that are needed for a while in databases that hold other stores as well, and deletes them without
// leave of anything. Each adapter registers how.
//
// It is internal because deleting whole stores is: a Space deletes what it has named itself and nothing else.
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

// Space is a place for stores in a database.
type Space struct {
	// Location is what people call it, such as "the schemas ashlar_x_…".
	Location string

	// Store returns the URL of a store of that number; it is there once it is opened.
	Store func(number int) *url.URL

	// Drop deletes all stores of the space, as far as there are any. None may be open. storage.ErrInconsistent is worth
	// another attempt.
	Drop func(ctx context.Context) error

	// Requests are bytes of which one is in each request that may change a resource; none if that is the resource's name.
	Requests []string
}

// Maker makes a space in the database of u whose name nobody has used. The stores have u's parameters, but for those that name
// the store or keep it from being created.
type Maker = func(u *url.URL, name string) (*Space, error)

var makers = map[string]Maker{}

// Register makes an adapter known. It is called from an adapter's init function.
func Register(maker Maker, schemes ...string) {
	for _, scheme := range schemes {
		makers[scheme] = maker
	}
}

// New returns a space in the database of the store that rawURL names, which it does not touch. A URL that is wrong is
// storage.ErrInvalid.
func New(rawURL, purpose string) (*Space, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("%w: malformed URL", storage.ErrInvalid) // the error repeats it, and with it a password
	}
	if strings.Contains(rawURL, "#") {
		return nil, fmt.Errorf("%w: a store's URL has no fragment (write %%23 for a # in it)", storage.ErrInvalid)
	}
	maker := makers[u.Scheme]
	if maker == nil {
		return nil, fmt.Errorf("%w: a store is named by a URL that begins with one of these, and a colon: %s", storage.ErrInvalid, strings.Join(slices.Sorted(maps.Keys(makers)), ", "))
	}
	return maker(u, "ashlar_"+purpose+"_"+strings.ToLower(rand.Text()[:8]))
}
