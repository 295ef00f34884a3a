package etcd

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ashlar-dev/storage/internal/scratchstore"
)

func init() { scratchstore.Register(newScratch, "etcd", "etcds") }

// newScratch names prefixes below that of u, where its user may write. The keys of u's store begin otherwise (see layout).
func newScratch(u *url.URL, name string) (*scratchstore.Space, error) {
	target, err := parseURL(u)
	if err != nil {
		return nil, err
	}
	prefix := target.options.Prefix + "/" + name + "/"
	store := func(number int) (*url.URL, error) {
		other := *u
		query := other.Query()
		query.Del("create")
		other.Path, other.RawPath, other.RawQuery = "/"+fmt.Sprint(prefix, number), "", query.Encode()
		_, err := parseURL(&other)
		return &other, err
	}
	if _, err := store(1_000_000); err != nil {
		return nil, err // the prefix is too long
	}
	return &scratchstore.Space{
		Location: fmt.Sprintf("the keys that begin with %q", prefix),
		Store: func(number int) *url.URL {
			u, _ := store(number) // looked at above
			return u
		},
		Drop: func(ctx context.Context) error {
			client, err := newClient(ctx, target)
			if err != nil {
				return err
			}
			if _, err = client.Delete(ctx, prefix, clientv3.WithPrefix()); err != nil && fateOf(err) != refused {
				err = unavailable(ctx, err)
			}
			return errors.Join(err, client.Close())
		},
	}, nil
}
