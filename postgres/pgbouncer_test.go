//go:build integration

package postgres_test

import (
	"net/url"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestPgBouncer uses a pooler in transaction mode, in each way that the README describes.
func TestPgBouncer(t *testing.T) {
	t.Parallel()
	pooler := env.StartPgBouncer(t, env.StartPostgres(t))
	for name, params := range map[string][]string{
		"direct URL to listen": {"listen=" + url.QueryEscape(pooler.Direct.URL)},
		"polling":              {"listen=off"},
		"simple protocol":      {"listen=off", "default_query_exec_mode=simple_protocol"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storeURL := pooler.StoreURL(t, params...)
			handles := []storage.Backend{fixture.Open(t, storeURL), fixture.Open(t, storeURL)}
			c := newChurn(t, 10)
			var followers []*follower
			for _, b := range handles {
				followers = append(followers, follow(t, name, fixture.WatchAll(t, b)))
			}
			for i, b := range handles {
				for j := range 4 {
					c.writer(b, uint64(i*4+j), 50)
				}
			}
			c.finish(handles[0], followers...)
			transactor, _ := storage.As[storage.Transactor](handles[0])
			if _, err := transactor.Commit(fixture.Context(t), []storage.Op{
				{Write: fixture.Resource("a", "v")}, {Write: fixture.Resource("b", "v")}, {Check: fixture.Resource("c", "v").Id},
			}); err != nil {
				t.Error(err)
			}
		})
	}
}
