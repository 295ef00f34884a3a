//go:build integration

package bench

import (
	"context"
	"errors"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/ashlar-dev/storage/internal/test/env"
)

// BenchmarkGrowthEtcd grows a store beside keys, and one more key for each owned item, read and written by clientv3 on the same
// server.
func BenchmarkGrowthEtcd(b *testing.B) { once(b, func() { growEtcd(b) }) }

func init() {
	openers["etcd"] = func(where string) (growing, error) { return openGrowingEtcd(where) }
}

func growEtcd(b *testing.B) {
	// For a million resources on each side, in one server.
	server := env.StartEtcd(b, "--quota-backend-bytes=8589934592")
	where := [2]string{server.Endpoint, server.StoreURL(b)}
	raw := must(openGrowingEtcd(where[0]))
	b.Cleanup(func() { raw.close() })
	ours := must(openGrowing(where[1], nil))
	b.Cleanup(func() { ours.close() })
	(&growths{
		name: "etcd", shown: "etcd", raw: "clientv3", most: 1_000_000,
		notes: []string{
			"Memory is the peak of a process that reads, watches and lists everything in pages; without the server's.",
			"The server's quota is 8 GiB, for both sides together; the default is 2 GiB.",
		},
		sides:  [2]growing{raw, ours},
		memory: peakMemory("etcd", where),
	}).run(b)
}

// growingEtcd stores items under raw/thing/<name> and edges under raw/owner/<owner>/<name>.
type growingEtcd struct {
	client    *clientv3.Client
	data      string
	revisions []int64 // of the items that this process has added
}

const rawThings, rawOwners = "raw/thing/", "raw/owner/"

func openGrowingEtcd(endpoint string) (*growingEtcd, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	return &growingEtcd{client: client, data: string(payload(600))}, err
}

func (s *growingEtcd) add(from, to int, done func(n int)) error {
	s.revisions = append(s.revisions, make([]int64, to-from)...)
	// Two operations for each item; a server accepts 128 in a transaction.
	return inBatches(from, to, 60, 8, done, func(from, to int) error {
		var ops []clientv3.Op
		for i := from; i < to; i++ {
			ops = append(ops, clientv3.OpPut(rawThings+nameOf(i), s.data))
			if owner, owned := ownerOf(i); owned {
				ops = append(ops, clientv3.OpPut(rawOwners+nameOf(owner)+"/"+nameOf(i), ""))
			}
		}
		resp, err := s.client.Txn(context.Background()).Then(ops...).Commit()
		if err != nil {
			return err
		}
		for i := from; i < to; i++ {
			s.revisions[i] = resp.Header.Revision
		}
		return nil
	})
}

func (s *growingEtcd) settle() error { return nil }

func (s *growingEtcd) read(i int) error {
	_, err := s.get(rawThings + nameOf(i))
	return err
}

func (s *growingEtcd) get(key string, opts ...clientv3.OpOption) (int, error) {
	resp, err := s.client.Get(context.Background(), key, opts...)
	if err != nil {
		return 0, err
	}
	return len(resp.Kvs), nil
}

func (s *growingEtcd) write(i int) error {
	resp, err := s.client.Txn(context.Background()).
		If(clientv3.Compare(clientv3.ModRevision(rawThings+nameOf(i)), "=", s.revisions[i])).
		Then(clientv3.OpPut(rawThings+nameOf(i), s.data)).Commit()
	switch {
	case err != nil:
		return err
	case !resp.Succeeded:
		return errors.New("the raw compare failed")
	}
	s.revisions[i] = resp.Header.Revision
	return nil
}

func (s *growingEtcd) list(prefix string) (int, error) {
	return s.get(rawThings+prefix, clientv3.WithPrefix())
}

// watch reads the items, and watches from the next revision on.
func (s *growingEtcd) watch(prefix string) (int, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	resp, err := s.client.Get(ctx, rawThings+prefix, clientv3.WithPrefix())
	if err != nil {
		return 0, err
	}
	created := <-s.client.Watch(ctx, rawThings+prefix, clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithCreatedNotify(),
		clientv3.WithRev(resp.Header.Revision+1))
	return len(resp.Kvs), created.Err()
}

func (s *growingEtcd) owned(i int) (int, error) {
	return s.get(rawOwners+nameOf(i)+"/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
}

func (s *growingEtcd) first(limit int) (int, error) { return s.pageAfter("", limit) }

func (s *growingEtcd) pageAfter(after string, limit int) (int, error) {
	return s.get(rawThings+after+"\x00", clientv3.WithRange(clientv3.GetPrefixRangeEnd(rawThings)), clientv3.WithLimit(int64(limit)))
}

func (s *growingEtcd) walk(limit int) (int, error) { return walkNames(limit, s.pageAfter) }

func (s *growingEtcd) close() error { return s.client.Close() }
