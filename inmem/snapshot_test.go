package inmem_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"testing"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
)

var everything = storage.UnversionedType{Group: "*", Kind: "*"}

func anywhere() *resourcepb.Tenancy { return &resourcepb.Tenancy{Partition: "*", Namespace: "*"} }

func write(t *testing.T, b storage.Backend, name, version string) *resourcepb.Resource {
	t.Helper()
	res, err := b.WriteCAS(t.Context(), &resourcepb.Resource{
		Id: &resourcepb.ID{Uid: "uid-" + name, Name: name, Type: &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Artist"},
			Tenancy: &resourcepb.Tenancy{Partition: "p", Namespace: "n"}},
		Version: version,
		Data:    &anypb.Any{TypeUrl: "example.com/Artist", Value: []byte(name)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func list(t *testing.T, b storage.Backend) []*resourcepb.Resource {
	t.Helper()
	list, err := b.List(t.Context(), storage.StrongConsistency, everything, anywhere(), "")
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestRestore(t *testing.T) {
	t.Parallel()
	b := inmem.New(nil)
	defer b.Close()
	for i := range 100 {
		write(t, b, fmt.Sprintf("artist %03d", i), "")
	}
	before := list(t, b)
	var saved bytes.Buffer
	if err := b.Snapshot(t.Context(), &saved); err != nil {
		t.Fatal(err)
	}
	changed := write(t, b, "artist 000", before[0].Version)
	write(t, b, "later", "")
	w, err := b.WatchList(t.Context(), everything, anywhere(), "later")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := w.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	cursor := w.Cursor()

	if err := b.Restore(t.Context(), &saved); err != nil {
		t.Fatal(err)
	}
	after := list(t, b)
	if len(after) != len(before) {
		t.Fatalf("got %d resources, expected %d", len(after), len(before))
	}
	for i := range after {
		if !proto.Equal(after[i], before[i]) {
			t.Errorf("got resource %v, expected %v", after[i], before[i])
		}
	}
	if _, err := w.Next(t.Context()); !errors.Is(err, storage.ErrWatchClosed) {
		t.Errorf("a watch from before the restore: got error %v, expected ErrWatchClosed", err)
	}
	if _, err := b.WatchFrom(t.Context(), everything, anywhere(), "", cursor); !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("a cursor from before the restore: got error %v, expected ErrCompacted", err)
	}
	again := write(t, b, "artist 000", after[0].Version)
	if again.Version == changed.Version {
		t.Errorf("version %q was repeated after the restore", again.Version)
	}
}

func TestDamagedSnapshotChangesNothing(t *testing.T) {
	t.Parallel()
	b := inmem.New(nil)
	defer b.Close()
	write(t, b, "one", "")
	write(t, b, "two", "")
	var buf bytes.Buffer
	if err := b.Snapshot(t.Context(), &buf); err != nil {
		t.Fatal(err)
	}
	whole := buf.Bytes()
	for cut := range whole {
		if err := b.Restore(t.Context(), bytes.NewReader(whole[:cut])); !errors.Is(err, storage.ErrInvalid) {
			t.Fatalf("truncated after %d bytes: got error %v, expected ErrInvalid", cut, err)
		}
		altered := bytes.Clone(whole)
		altered[cut] ^= 0x10
		if err := b.Restore(t.Context(), bytes.NewReader(altered)); !errors.Is(err, storage.ErrInvalid) {
			t.Fatalf("byte %d changed: got error %v, expected ErrInvalid", cut, err)
		}
	}
	if err := b.Restore(t.Context(), bytes.NewReader(append(bytes.Clone(whole), 0))); !errors.Is(err, storage.ErrInvalid) {
		t.Fatalf("an additional byte: got error %v, expected ErrInvalid", err)
	}
	if got := list(t, b); len(got) != 2 {
		t.Fatalf("the store has %d resources, expected 2", len(got))
	}
}

func TestNamedStoresAreShared(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	open := func(url string) storage.Backend {
		b, err := storage.Open(ctx, url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		return b
	}
	shared := "mem://" + rand.Text() // a named store lives as long as the process
	one, two, other, private := open(shared), open(shared), open("mem://"+rand.Text()), open("mem://")
	write(t, one, "a", "")
	if len(list(t, two)) != 1 || len(list(t, other)) != 0 || len(list(t, private)) != 0 {
		t.Error("a write must be visible under its store's name only")
	}
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	if len(list(t, two)) != 1 {
		t.Error("closing one handle must not close the other")
	}
	if _, err := storage.Open(ctx, "mem://nowhere?create=off"); !errors.Is(err, storage.ErrNoStore) {
		t.Errorf("create=off: got error %v, expected ErrNoStore", err)
	}
}

// Restore refuses a well-formed snapshot with invalid resources: without an id, or two with the same key.
func TestRestoreRefusesInvalidResources(t *testing.T) {
	t.Parallel()
	b := inmem.New(nil)
	defer b.Close()
	good := write(t, b, "artist", "")
	owned := func(owner string) *resourcepb.Resource {
		res := proto.CloneOf(good)
		res.Owner = proto.CloneOf(good.Id)
		res.Owner.Name = owner
		return res
	}
	for name, resources := range map[string][]*resourcepb.Resource{
		"no id":                   {{Version: "1"}},
		"no uid":                  {{Version: "1", Id: &resourcepb.ID{Name: "artist", Type: good.Id.Type, Tenancy: good.Id.Tenancy}}},
		"no version":              {{Id: good.Id}},
		"one key with two owners": {owned("a"), owned("b")},
	} {
		var saved bytes.Buffer
		saved.WriteString("ashlar memory snapshot 1\n")
		saved.Write(binary.BigEndian.AppendUint64(nil, uint64(len(resources))))
		for _, res := range resources {
			if _, err := protodelim.MarshalTo(&saved, res); err != nil {
				t.Fatal(err)
			}
		}
		saved.Write(binary.BigEndian.AppendUint32(nil, crc32.Checksum(saved.Bytes(), crc32.MakeTable(crc32.Castagnoli))))
		if err := b.Restore(t.Context(), &saved); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("%s: got error %v, expected ErrInvalid", name, err)
		}
	}
	if now := list(t, b); len(now) != 1 || !proto.Equal(now[0], good) {
		t.Errorf("the store has %v, expected the resource from before", now)
	}
}
