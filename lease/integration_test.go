//go:build integration

package lease_test

import (
	"strings"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	_ "github.com/ashlar-dev/storage/dynamodb"
	_ "github.com/ashlar-dev/storage/etcd"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/faultproxy"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	_ "github.com/ashlar-dev/storage/postgres"
)

func TestMain(m *testing.M) {
	if !serveCandidate() {
		env.Main(m)
	}
}

func TestOneAtATimeOnPostgres(t *testing.T) {
	t.Parallel()
	oneAtATime(t, opened(t, env.Postgres(t).StoreURL(t))...)
}

func TestOneAtATimeOnEtcd(t *testing.T) {
	t.Parallel()
	oneAtATime(t, opened(t, env.Etcd(t).StoreURL(t))...)
}

func TestOneAtATimeOnDynamoDB(t *testing.T) {
	t.Parallel()
	oneAtATime(t, opened(t, env.DynamoDB(t).StoreURL(t))...)
}

// candidates is how many processes want the lock in a storm.
const candidates = 3

func TestStormOnPostgres(t *testing.T) {
	t.Parallel()
	server := env.Postgres(t)
	schema := server.Schema(t)
	var urls []string
	var links []*faultproxy.Proxy
	for range candidates {
		link := faultproxy.New(t, server.Addr)
		urls, links = append(urls, server.At(t, link.Addr()).StoreURLIn(t, schema)), append(links, link)
	}
	throughStorm(t, urls, server.StoreURLIn(t, schema), true, links)
}

func TestStormOnEtcd(t *testing.T) {
	t.Parallel()
	server := env.Etcd(t)
	prefix := server.Prefix(t)
	around := server.StoreURLIn(t, prefix)
	var urls []string
	var links []*faultproxy.Proxy
	for range candidates {
		link := faultproxy.New(t, server.Endpoint)
		urls, links = append(urls, strings.Replace(around, server.Endpoint, link.Addr(), 1)), append(links, link)
	}
	throughStorm(t, urls, around, true, links)
}

func TestStormOnDynamoDB(t *testing.T) {
	t.Parallel()
	url := env.DynamoDB(t).StoreURL(t)
	throughStorm(t, []string{url, url, url}, url, false, nil)
}

func TestNoOrphansOnPostgres(t *testing.T) {
	t.Parallel()
	noOrphans(t, opened(t, env.Postgres(t).StoreURL(t))...)
}

func TestNoOrphansOnEtcd(t *testing.T) {
	t.Parallel()
	noOrphans(t, opened(t, env.Etcd(t).StoreURL(t))...)
}

func TestNoOrphansOnDynamoDB(t *testing.T) {
	t.Parallel()
	noOrphans(t, opened(t, env.DynamoDB(t).StoreURL(t))...)
}

// etcd does not tell the uid of what was damaged.
func TestADamagedRecordStopsNoOtherLeaseOnEtcd(t *testing.T) {
	t.Parallel()
	server := env.Etcd(t)
	client := server.Client(t)
	damagedRecords(t, func(t *testing.T) (storage.Backend, func(kind string)) {
		prefix := server.Prefix(t)
		b := fixture.Open(t, server.StoreURLIn(t, prefix))
		return b, func(kind string) {
			at := prefix + "/\x00r" + string(key.Of(only(t, b, "lease", kind).GetId()).Bytes())
			if _, err := client.Put(fixture.Context(t), at, "no resource"); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A connection that is dead and does not say so costs a sign of life, and not the lock.
func TestAHolderOutlivesADeadConnectionToPostgres(t *testing.T) {
	t.Parallel()
	server := env.Postgres(t)
	schema := server.Schema(t)
	link := faultproxy.New(t, server.Addr)
	b, around := fixture.Open(t, server.At(t, link.Addr()).StoreURLIn(t, schema)), fixture.Open(t, server.StoreURLIn(t, schema))
	tenure := campaign(t, elector(t, b, "job"))
	trap := link.HoldAnswer([]byte("Heartbeat"))
	<-trap.Sprung()
	defer trap.Cut()
	last := only(t, around, "coordination", "Heartbeat").GetVersion()
	fixture.Eventually(t, "the holder gives a sign of life again", func() bool {
		return tenure.Err() != nil || only(t, around, "coordination", "Heartbeat").GetVersion() != last
	})
	if tenure.Err() != nil {
		t.Error(tenure.Err())
	}
	resign(t, tenure)
}
