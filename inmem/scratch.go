package inmem

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"strings"

	"github.com/ashlar-dev/storage/internal/scratchstore"
)

func init() { scratchstore.Register(newScratch, "mem") }

// newScratch names stores of the process.
func newScratch(u *url.URL, name string) (*scratchstore.Space, error) {
	prefix := name + "_"
	return &scratchstore.Space{
		Location: "the stores " + prefix + "… in memory",
		Store: func(number int) *url.URL {
			other := *u
			query := other.Query()
			query.Del("create")
			other.Host, other.Path, other.RawQuery = fmt.Sprint(prefix, number), "", query.Encode()
			return &other
		},
		Drop: func(context.Context) error {
			named.Lock()
			defer named.Unlock()
			maps.DeleteFunc(named.stores, func(name string, _ *store) bool { return strings.HasPrefix(name, prefix) })
			return nil
		},
	}, nil
}
