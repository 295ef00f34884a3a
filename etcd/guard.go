package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/ashlar-dev/storage/driver"
)

// guard is the comparison that a driver.Guard comes to.
type guard struct {
	*driver.Guard
	key []byte
	rev int64
}

// guardOf returns the guard that a context carries, nil for none.
func (b *handle) guardOf(ctx context.Context) (*guard, error) {
	g := driver.GuardOf(ctx)
	if g == nil {
		return nil, nil
	}
	rev, ok := parseRevision(g.Revision)
	if !ok {
		return nil, g.Superseded()
	}
	return &guard{g, []byte(b.layout.noteKey(g.Note)), rev}, nil
}

// size is what the guard adds to a request.
func (g *guard) size() int {
	if g == nil {
		return 0
	}
	return 2 * (len(g.key) + opOverhead)
}

// compare returns comparisons with the guard's in front.
func (g *guard) compare(others ...*pb.Compare) []*pb.Compare {
	if g == nil {
		return others
	}
	return append([]*pb.Compare{unchanged(g.key, g.rev)}, others...)
}

// look returns what a failed transaction reads, with the guard's note behind.
func (g *guard) look(others ...*pb.RequestOp) []*pb.RequestOp {
	if g == nil {
		return others
	}
	return append(others, opGet(g.key))
}

// failed returns the guard's error where what a failed transaction has read says that the guard does not hold. The note is the
// last that was read.
func (g *guard) failed(read []*pb.ResponseOp) error {
	if g == nil {
		return nil
	}
	var rev int64
	if kv := first(read[len(read)-1].GetResponseRange().Kvs); kv != nil {
		rev = kv.ModRevision
	}
	if rev != g.rev {
		return g.Superseded()
	}
	return nil
}
