package etcdserver

import (
	"bytes"
	"cmp"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

// A value is stored as a google.protobuf.BytesValue, so that other readers of the resource can decode it.
const (
	valueURL   = "type.googleapis.com/google.protobuf.BytesValue"
	valueField = protowire.Number(1)
)

// resourceOf returns the resource of a key with a value, without a lease.
func resourceOf(id *resourcepb.ID, value []byte) *resourcepb.Resource {
	res := &resourcepb.Resource{Id: id, Data: &anypb.Any{TypeUrl: valueURL}}
	if len(value) > 0 {
		b := make([]byte, 0, len(value)+protowire.SizeTag(valueField)+protowire.SizeVarint(uint64(len(value))))
		b = protowire.AppendTag(b, valueField, protowire.BytesType)
		res.Data.Value = protowire.AppendBytes(b, value)
	}
	return res
}

// valueOf returns a stored value, or nil if it is empty. It shares memory with the resource.
func valueOf(res *resourcepb.Resource) []byte {
	b := res.GetData().GetValue()
	if num, typ, n := protowire.ConsumeTag(b); n > 0 && num == valueField && typ == protowire.BytesType {
		if value, m := protowire.ConsumeBytes(b[n:]); m > 0 {
			return value
		}
	}
	return nil
}

// leaseOf returns the lease that a key is attached to, or 0.
func leaseOf(res *resourcepb.Resource) int64 { return leaseNumber(res.GetOwner().GetName()) }

// pair converts a record to etcd's form. It returns nil for nil.
func pair(r *history.Record) *mvccpb.KeyValue {
	if r == nil {
		return nil
	}
	return &mvccpb.KeyValue{
		Key: keyOf(r.Resource.GetId()), Value: valueOf(r.Resource), Lease: leaseOf(r.Resource),
		CreateRevision: r.Created, ModRevision: r.Modified, Version: r.Writes,
	}
}

// modRevision returns the revision of a key's last change, or 0 if nothing is stored.
func modRevision(r *history.Record) int64 {
	if r == nil {
		return 0
	}
	return r.Modified
}

// compareHolds reports whether a comparison holds for a stored record, nil for none.
func compareHolds(c *pb.Compare, stored *history.Record) bool {
	kv := pair(stored)
	if kv == nil {
		if c.Target == pb.Compare_VALUE {
			return false // a missing value is not the empty value
		}
		kv = &mvccpb.KeyValue{}
	}
	result := 0
	switch c.Target {
	case pb.Compare_VERSION:
		result = cmp.Compare(kv.Version, c.GetVersion())
	case pb.Compare_CREATE:
		result = cmp.Compare(kv.CreateRevision, c.GetCreateRevision())
	case pb.Compare_MOD:
		result = cmp.Compare(kv.ModRevision, c.GetModRevision())
	case pb.Compare_VALUE:
		result = bytes.Compare(kv.Value, c.GetValue())
	case pb.Compare_LEASE:
		result = cmp.Compare(kv.Lease, c.GetLease())
	}
	switch c.Result {
	case pb.Compare_EQUAL:
		return result == 0
	case pb.Compare_NOT_EQUAL:
		return result != 0
	case pb.Compare_GREATER:
		return result > 0
	case pb.Compare_LESS:
		return result < 0
	}
	return true
}
