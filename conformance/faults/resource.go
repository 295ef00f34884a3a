package faults

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

// thing is the type of all resources that a run writes.
var thing = storage.UnversionedType{Group: "faults", Kind: "Thing"}

const (
	partition = "faults"

	metaName     = "name"     // of the write
	metaReplaces = "replaces" // the version that the write replaces
	metaSum      = "sum"      // of the data
	metaLast     = "last"     // set by the write that ends a round
)

// KeyPattern is part of every key that a run writes to, so that a proxy can recognize requests by it.
const KeyPattern = "faulty-key-"

func keyName(i int) string { return fmt.Sprintf("%s%02d", KeyPattern, i) }

func roundTenancy(namespace string) *resourcepb.Tenancy {
	return &resourcepb.Tenancy{Partition: partition, Namespace: namespace}
}

// allTenancies selects the whole store.
var allTenancies = roundTenancy(storage.Wildcard)

func idOf(namespace, key, uid string) *resourcepb.ID {
	return &resourcepb.ID{
		Type:    &resourcepb.Type{Group: thing.Group, GroupVersion: "v1", Kind: thing.Kind},
		Tenancy: roundTenancy(namespace), Name: key, Uid: uid,
	}
}

// newResource returns the resource that a write called name stores.
func newResource(id *resourcepb.ID, name, version string, size int, random *rand.Rand) *resourcepb.Resource {
	data := make([]byte, size)
	for i := 0; i < size; i += 64 { // enough to make resources different
		data[i] = byte(random.Uint32())
	}
	return &resourcepb.Resource{
		Id: id, Version: version, Data: &anypb.Any{TypeUrl: "faults/data", Value: data},
		Metadata: map[string]string{metaName: name, metaReplaces: version, metaSum: sum(name, data)},
	}
}

func sum(name string, data []byte) string {
	return fmt.Sprintf("%08x", crc32.Update(crc32.ChecksumIEEE([]byte(name)), crc32.IEEETable, data))
}

// contentError returns the error of a resource's content, or "".
func contentError(res *resourcepb.Resource) string {
	if got, want := sum(res.Metadata[metaName], res.Data.GetValue()), res.Metadata[metaSum]; got != want {
		return fmt.Sprintf("%s at version %q is not the resource that was written: %d bytes with checksum %s instead of %s",
			res.Id.GetName(), res.Version, len(res.Data.GetValue()), got, want)
	}
	return ""
}

// readPart returns the part of a read that returned res, or nothing.
func readPart(key string, res *resourcepb.Resource) part {
	return part{verb: read, key: key, observedState: state{res.GetId().GetUid(), res.GetVersion()}, writeName: res.GetMetadata()[metaName]}
}

// ownerOf formats an owner for a history; "" is none.
func ownerOf(id *resourcepb.ID) string {
	if id == nil {
		return ""
	}
	return id.GetName() + " with uid " + id.GetUid()
}

// keyRangeOf returns the range of all keys of a namespace, or of one key. No name of a run continues with a character as low as
// next.
func keyRangeOf(namespace, key string) history.Range {
	const next = "\x01"
	if key != "" {
		return history.Range{From: idOf(namespace, key, ""), To: idOf(namespace, key+next, "")}
	}
	return history.Range{From: idOf(namespace, "", ""), To: idOf(namespace+next, "", "")}
}

func resourcesOf(records []history.Record) (all []*resourcepb.Resource) {
	for _, r := range records {
		all = append(all, r.Resource)
	}
	return all
}
