//go:build integration

package postgres_test

import (
	"net/url"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/storetest"
	"github.com/ashlar-dev/storage/internal/testenv"
)

// TestPgBouncer goes through a pooler in transaction mode, in each way that the README names.
func TestPgBouncer(t *testing.T) {
	t.Parallel()
	pooler := testenv.StartPgBouncer(t, testenv.StartPostgres(t))
	for name, params := range map[string][]string{
		"direct URL to listen": {"listen=" + url.QueryEscape(pooler.Direct.URL)},
		"polling":              {"listen=off"},
		"simple protocol":      {"listen=off", "default_query_exec_mode=simple_protocol"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storeURL := pooler.StoreURL(t, params...)
			handles := []storage.Backend{storetest.Open(t, storeURL), storetest.Open(t, storeURL)}
			c := newChurn(t, 10)
			var followers []*follower
			for _, b := range handles {
				followers = append(followers, follow(t, name, storetest.WatchAll(t, b)))
			}
			for i, b := range handles {
				for j := range 4 {
					c.writer(b, uint64(i*4+j), 50)
				}
			}
			c.finish(handles[0], followers...)
			transactor, _ := storage.As[storage.Transactor](handles[0])
			if _, err := transactor.Commit(storetest.Context(t), []storage.Op{
				{Write: storetest.Resource("a", "v")}, {Write: storetest.Resource("b", "v")}, {Check: storetest.Resource("c", "v").Id},
			}); err != nil {
				t.Error(err)
			}
		})
	}
}
