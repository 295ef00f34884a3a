package inmem

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/params"
	"github.com/ashlar-dev/storage/internal/scratchstore"
	"github.com/ashlar-dev/storage/telemetry"
)

func init() {
	storage.Register("mem", func(ctx context.Context, u *url.URL) (storage.Backend, error) {
		b, err := Open(ctx, u)
		if err != nil {
			return nil, err // not b, a typed nil pointer
		}
		return b, nil
	})
}

// namedStores holds the named stores of the process.
var namedStores struct {
	sync.Mutex
	stores map[string]*store
}

// Open opens the store of a URL: mem:// for a private store, mem://name for a store shared by the process. The
// package documentation lists the parameters.
func Open(ctx context.Context, u *url.URL) (*Backend, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	name := u.Host + strings.TrimSuffix(u.Path, "/")
	if u.User != nil || u.Opaque != "" {
		return nil, fmt.Errorf("%w: malformed URL of a store in memory: write mem:// or mem://name", storage.ErrInvalid)
	}
	p := params.Parse(u)
	opts := &Options{
		MaxSize:      p.Int("max-size", 0, 1, driver.MaxSize),
		History:      p.Int("history", 0, 1, 1<<30),
		HistoryBytes: p.Int("history-bytes", 0, 1, 1<<30),
		Telemetry:    telemetry.Options{Logger: p.Logger()}.Or(telemetry.FromContext(ctx)),
		name:         name,
	}
	create := p.OnOff("create", true)
	p.Duration("timeout", 30*time.Second)
	p.Duration("outage", 5*time.Minute)
	if err := p.Err(); err != nil {
		return nil, err
	}
	if name == "" {
		return New(opts), nil
	}
	namedStores.Lock()
	defer namedStores.Unlock()
	s := namedStores.stores[name]
	if s == nil {
		if !create {
			return nil, fmt.Errorf("%w: this process has no store in memory by that name, and create=off forbids creating it", storage.ErrNoStore)
		}
		s = newStore()
		if namedStores.stores == nil {
			namedStores.stores = make(map[string]*store)
		}
		namedStores.stores[name] = s
	}
	return open(s, opts), nil
}

func init() { scratchstore.Register(newScratch, "mem") }

// newScratch returns a space of stores whose names begin with name.
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
			namedStores.Lock()
			defer namedStores.Unlock()
			maps.DeleteFunc(namedStores.stores, func(name string, _ *store) bool { return strings.HasPrefix(name, prefix) })
			return nil
		},
	}, nil
}
