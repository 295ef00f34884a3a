package etcd

import (
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

func first(kvs []*mvccpb.KeyValue) *mvccpb.KeyValue {
	if len(kvs) == 0 {
		return nil
	}
	return kvs[0]
}

// compareRevision returns the comparison of a key's mod revision with rev. 0 compares that the key does not exist.
func compareRevision(etcdKey []byte, rev int64) *pb.Compare {
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

// protoCodec encodes like gRPC's own codec, with buffers of other sizes.
type protoCodec struct{}

// buffers holds the buffers of encoded messages. gRPC's own pool has no sizes between 32 KiB and 1 MiB, the sizes of batches, and clears
// a whole buffer each time it returns one.
var buffers = mem.NewTieredBufferPool(1<<10, 1<<12, 1<<14, 1<<15, 1<<16, 1<<17, 1<<18, 1<<19, 1<<20, 1<<21)

// Marshal implements encoding.CodecV2.
func (protoCodec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is not a protobuf message", v)
	}
	buf := buffers.Get(proto.Size(m))
	// The buffer has the size of the message, so MarshalAppend does not reallocate it.
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
		return fmt.Errorf("%T is not a protobuf message", v)
	}
	buf := data.MaterializeToBuffer(buffers)
	defer buf.Free()
	return proto.Unmarshal(buf.ReadOnlyData(), m) // copies the data
}

// Name implements encoding.CodecV2.
func (protoCodec) Name() string { return "proto" }
