//go:build integration

package lease_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	_ "github.com/ashlar-dev/storage/dynamodb"
	_ "github.com/ashlar-dev/storage/etcd"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/faultproxy"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/lease"
	_ "github.com/ashlar-dev/storage/postgres"
)

func TestMain(m *testing.M) {
	if !serveCandidate() {
		env.Main(m)
	}
}

func TestMutualExclusionOnPostgres(t *testing.T) {
	t.Parallel()
	testMutualExclusion(t, openTwice(t, env.Postgres(t).StoreURL(t))...)
}

func TestMutualExclusionOnEtcd(t *testing.T) {
	t.Parallel()
	testMutualExclusion(t, openTwice(t, env.Etcd(t).StoreURL(t))...)
}

func TestMutualExclusionOnDynamoDB(t *testing.T) {
	t.Parallel()
	testMutualExclusion(t, openTwice(t, env.DynamoDB(t).StoreURL(t))...)
}

// candidates is the number of processes that compete for the lock in a storm.
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
	runStorm(t, urls, server.StoreURLIn(t, schema), true, links)
}

func TestStormOnEtcd(t *testing.T) {
	t.Parallel()
	server := env.Etcd(t)
	prefix := server.Prefix(t)
	direct := server.StoreURLIn(t, prefix)
	var urls []string
	var links []*faultproxy.Proxy
	for range candidates {
		link := faultproxy.New(t, server.Endpoint)
		urls, links = append(urls, strings.Replace(direct, server.Endpoint, link.Addr(), 1)), append(links, link)
	}
	runStorm(t, urls, direct, true, links)
}

func TestStormOnDynamoDB(t *testing.T) {
	t.Parallel()
	url := env.DynamoDB(t).StoreURL(t)
	runStorm(t, []string{url, url, url}, url, false, nil)
}

func TestNoOrphansOnPostgres(t *testing.T) {
	t.Parallel()
	noOrphans(t, openTwice(t, env.Postgres(t).StoreURL(t))...)
}

func TestNoOrphansOnEtcd(t *testing.T) {
	t.Parallel()
	noOrphans(t, openTwice(t, env.Etcd(t).StoreURL(t))...)
}

func TestNoOrphansOnDynamoDB(t *testing.T) {
	t.Parallel()
	noOrphans(t, openTwice(t, env.DynamoDB(t).StoreURL(t))...)
}

// etcd does not report the uid of a damaged record.
func TestDamagedRecordDoesNotBlockOtherLeasesOnEtcd(t *testing.T) {
	t.Parallel()
	server := env.Etcd(t)
	client := server.Client(t)
	testDamagedRecords(t, func(t *testing.T) (storage.Backend, func(kind string)) {
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

// A dead connection that reports no error costs one heartbeat, but not the lock.
func TestTenureSurvivesDeadConnectionToPostgres(t *testing.T) {
	t.Parallel()
	server := env.Postgres(t)
	schema := server.Schema(t)
	link := faultproxy.New(t, server.Addr)
	b, direct := fixture.Open(t, server.At(t, link.Addr()).StoreURLIn(t, schema)), fixture.Open(t, server.StoreURLIn(t, schema))
	e, err := lease.NewElector(b, system, "job", &lease.Options{TTL: 45 * time.Second}) // a busy machine needs many seconds for the next heartbeat
	if err != nil {
		t.Fatal(err)
	}
	tenure := campaign(t, e)
	trap := link.HoldAnswer([]byte("Heartbeat"))
	<-trap.Sprung()
	defer trap.Cut()
	last := only(t, direct, "coordination", "Heartbeat").GetVersion()
	fixture.Eventually(t, "the holder writes another heartbeat", func() bool {
		return tenure.Err() != nil || only(t, direct, "coordination", "Heartbeat").GetVersion() != last
	})
	if tenure.Err() != nil {
		t.Error(tenure.Err())
	}
	resign(t, tenure)
}
