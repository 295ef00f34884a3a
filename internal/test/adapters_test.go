package test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/dynamodb"
	"github.com/ashlar-dev/storage/etcd"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/postgres"
	"github.com/ashlar-dev/storage/sqlite"
)

// Every adapter has a Backend and opens it by URL. New takes the connection, which remains the caller's, and Options; in memory there
// is no connection and no failure. The compiler checks the signatures.
var (
	_ func(*inmem.Options) *inmem.Backend                                                                               = inmem.New
	_ func(context.Context, string, *sqlite.Options) (*sqlite.Backend, error)                                           = sqlite.New
	_ func(context.Context, *pgxpool.Pool, *postgres.Options) (*postgres.Backend, error)                                = postgres.New
	_ func(context.Context, *clientv3.Client, *etcd.Options) (*etcd.Backend, error)                                     = etcd.New
	_ func(context.Context, *awsdynamodb.Client, *dynamodbstreams.Client, *dynamodb.Options) (*dynamodb.Backend, error) = dynamodb.New
)

// opener returns an adapter's Open as a storage.Opener.
func opener[B storage.Backend](open func(context.Context, *url.URL) (B, error)) storage.Opener {
	return func(ctx context.Context, u *url.URL) (storage.Backend, error) { return open(ctx, u) }
}

var openers = map[string]storage.Opener{
	"mem":      opener[*inmem.Backend](inmem.Open),
	"sqlite":   opener[*sqlite.Backend](sqlite.Open),
	"postgres": opener[*postgres.Backend](postgres.Open),
	"etcd":     opener[*etcd.Backend](etcd.Open),
	"dynamodb": opener[*dynamodb.Backend](dynamodb.Open),
}

// Open of an adapter refuses the same URLs as storage.Open. A failure through storage.Open returns a nil interface, not a nil
// pointer in an interface.
func TestOpenersRefuse(t *testing.T) {
	t.Parallel()
	for scheme, open := range openers {
		for _, rest := range []string{"//host/name?no-such-parameter=1", "//host/name#fragment", "//host/name?timeout=0s"} {
			u, err := url.Parse(scheme + ":" + rest)
			if err != nil {
				t.Fatal(err)
			}
			if scheme == "sqlite" {
				u.Host = ""
			}
			if _, err := open(t.Context(), u); !errors.Is(err, storage.ErrInvalid) {
				t.Errorf("%s: %v, expected ErrInvalid", u, err)
			}
			if b, err := storage.Open(t.Context(), u.String()); b != nil || !errors.Is(err, storage.ErrInvalid) {
				t.Errorf("%s through storage.Open: %v and %v, expected no backend and ErrInvalid", u, b, err)
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := open(ended, &url.URL{Scheme: scheme, Host: "host"}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s with an ended context: %v, expected Canceled", scheme, err)
		}
	}
}

// Durations that are too short are refused by name before anything is created or requested: in a ticker they would end the process.
func TestMinimumDurations(t *testing.T) {
	t.Parallel()
	for scheme, parameters := range map[string][]string{
		"mem":      {"timeout", "outage"},
		"sqlite":   {"timeout", "outage", "retention"},
		"postgres": {"timeout", "outage", "retention", "poll"},
		"etcd":     {"timeout", "outage", "dial-timeout"},
		"dynamodb": {"timeout", "outage", "poll", "idle-poll"},
	} {
		for _, name := range parameters {
			for _, value := range []string{"1ns", "3ns", "0", "0s", "-1s", "999us"} {
				u := &url.URL{Scheme: scheme, Host: "host", Path: "/name", RawQuery: name + "=" + value}
				if scheme == "sqlite" {
					u.Host, u.Path = "", t.TempDir()+"/store.db"
				}
				b, err := openers[scheme](t.Context(), u)
				if err == nil {
					_ = b.Close()
				}
				if !errors.Is(err, storage.ErrInvalid) || !strings.Contains(err.Error(), name) {
					t.Errorf("%s with %s=%s: %v, expected ErrInvalid with %s", scheme, name, value, err, name)
				}
			}
		}
	}
}
