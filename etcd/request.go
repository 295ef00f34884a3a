package etcd

import (
	"context"
	"fmt"
	"math"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// A transaction is sent as etcd's protocol has it. The client's own operations are large structs and would copy each key and
// value once more on the way, which is much of what a batch costs.

// txn carries out a transaction on a member that knows a leader.
func (b *handle) txn(ctx context.Context, req *pb.TxnRequest) (*pb.TxnResponse, error) {
	resp, err := b.txns.Txn(clientv3.WithRequireLeader(ctx), req, grpc.ForceCodecV2(protoCodec{}), grpc.MaxCallRecvMsgSize(math.MaxInt32))
	if err != nil {
		return nil, clientv3.ContextError(ctx, err)
	}
	return resp, nil
}

// unchanged compares a key with a mod revision, 0 for nothing stored.
func unchanged(etcdKey []byte, rev int64) *pb.Compare {
	return &pb.Compare{
		Key: etcdKey, Target: pb.Compare_MOD, Result: pb.Compare_EQUAL, TargetUnion: &pb.Compare_ModRevision{ModRevision: rev},
	}
}

func opGet(etcdKey []byte) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: etcdKey}}}
}

func opPut(etcdKey, value []byte) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: etcdKey, Value: value}}}
}

func opDelete(etcdKey []byte) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: etcdKey}}}
}

func opTxn(req *pb.TxnRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: req}}
}

// protoCodec encodes as gRPC's own codec does, with buffers of other sizes.
type protoCodec struct{}

// buffers are what messages are encoded in and decoded from. gRPC's own pool has none between 32 KiB and 1 MiB, where batches
// are, and clears a buffer as a whole each time it hands it out.
var buffers = mem.NewTieredBufferPool(1<<10, 1<<12, 1<<14, 1<<15, 1<<16, 1<<17, 1<<18, 1<<19, 1<<20, 1<<21)

// Marshal implements encoding.CodecV2.
func (protoCodec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no message of etcd's", v)
	}
	buf := buffers.Get(proto.Size(m))
	// The buffer is as long as the message, so it is filled, not replaced.
	if _, err := (proto.MarshalOptions{UseCachedSize: true}).MarshalAppend((*buf)[:0], m); err != nil {
		buffers.Put(buf)
		return nil, err
	}
	return mem.BufferSlice{mem.NewBuffer(buf, buffers)}, nil
}

// Unmarshal implements encoding.CodecV2.
func (protoCodec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is no message of etcd's", v)
	}
	buf := data.MaterializeToBuffer(buffers)
	defer buf.Free()
	return proto.Unmarshal(buf.ReadOnlyData(), m) // copies what it keeps
}

// Name implements encoding.CodecV2.
func (protoCodec) Name() string { return "proto" }
