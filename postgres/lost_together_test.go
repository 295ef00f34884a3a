//go:build integration

package postgres_test

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/faultproxy"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestLostUpdatesTogether loses requests and answers of transactions that check a resource and update another. Such transactions take no
// lock that could be revoked. A transaction that was applied succeeds, even if both resources have been replaced since; one that must fail fails.
func TestLostUpdatesTogether(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	proxy, through, direct := behindProxy(t)
	transactor, _ := storage.As[storage.Transactor](through)
	w := fixture.WatchAll(t, direct)
	endOfSnapshot(t, w)
	for name, cut := range map[string]func([]byte) *faultproxy.Trap{"request": proxy.CutRequest, "answer": proxy.CutAnswer} {
		fence, res := fixture.Write(t, direct, fixture.Resource("fence-"+name, "v")), fixture.Write(t, direct, fixture.Resource(name, "v"))
		res.Data.Value = []byte("payload" + unique())
		trap := cut(res.Data.Value)
		results, err := transactor.Commit(ctx, []storage.Op{{Check: fence.Id, Version: fence.Version}, {Write: res}})
		sprung(t, trap)
		if err != nil || !proto.Equal(results[1], read(t, direct, res.Id)) {
			t.Fatalf("%s: committed %v, %v", name, results, err)
		}
		expectOnce(t, w, direct, name, 2)

		stale := fence.Version
		fixture.Write(t, direct, fence)
		res = results[1]
		res.Data.Value = []byte("payload" + unique())
		trap = cut(res.Data.Value)
		_, err = transactor.Commit(ctx, []storage.Op{{Write: res}, {Check: fence.Id, Version: stale}})
		sprung(t, trap)
		if failed := (*storage.OpError)(nil); !errors.As(err, &failed) || failed.Index != 1 || !isCASFailure(err) {
			t.Errorf("%s: with a check of an old version: %v", name, err)
		}
		expectOnce(t, w, direct, name, 0)
	}

	fence, res := fixture.Write(t, direct, fixture.Resource("fence", "v")), fixture.Write(t, direct, fixture.Resource("replaced", "v"))
	res.Data.Value = []byte("payload" + unique())
	trap := proxy.HoldAnswer(res.Data.Value)
	errCh := make(chan error, 1)
	go func() {
		_, err := transactor.Commit(ctx, []storage.Op{{Check: fence.Id, Version: fence.Version}, {Write: res}})
		errCh <- err
	}()
	sprung(t, trap)
	fixture.Eventually(t, "the transaction to be committed", func() bool { return string(read(t, direct, res.Id).Data.Value) == string(res.Data.Value) })
	fixture.Write(t, direct, fence)
	fixture.Write(t, direct, read(t, direct, res.Id))
	trap.Cut()
	if err := <-errCh; err != nil {
		t.Errorf("a transaction that was applied before its resources were replaced: %v", err)
	}
	expectOnce(t, w, direct, "replaced", 3)
}
