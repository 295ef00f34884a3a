package etcd

import (
	"bytes"
	"strings"
	"testing"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

func resource(name, uid string, owner *resourcepb.ID) *resourcepb.Resource {
	return &resourcepb.Resource{Id: key.Key{Group: "g", Kind: "k", Partition: "p", Name: name}.ID(uid, "v1"), Owner: owner}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	l := newLayout("prefix")
	l.store = driver.StoreID{1}
	owner := key.Key{Group: "g", Kind: "k", Name: "owner"}.ID("owner-uid", "v1")
	for _, res := range []*resourcepb.Resource{resource("a", "uid", nil), resource("a", "uid", owner)} {
		k := key.Of(res.Id)
		from := base{rev: 7, entry: entryOf(res)}
		text := l.version(k, "uid", from)
		got, ok := l.parseVersion(k, "uid", text)
		if !ok || got.rev != 7 || (got.entry == nil) != (from.entry == nil) || got.entry != nil && *got.entry != *from.entry {
			t.Errorf("%q parses as %+v, %v", text, got, ok)
		}
		other := newLayout("prefix")
		for name, parsed := range map[string]bool{
			"another uid":   second(l.parseVersion(k, "other", text)),
			"another key":   second(l.parseVersion(key.Key{Group: "g", Kind: "k", Name: "b"}, "uid", text)),
			"another store": second(other.parseVersion(k, "uid", text)),
		} {
			if parsed {
				t.Errorf("the version of %s parses", name)
			}
		}
		for i := range text {
			for _, c := range []byte{'A', 'B', '-', '\n', '=', 0, 0xff} {
				if changed := text[:i] + string(c) + text[i+1:]; changed != text && second(l.parseVersion(k, "uid", changed)) {
					t.Errorf("the changed version %q parses", changed)
				}
			}
			if second(l.parseVersion(k, "uid", text[:i])) || second(l.parseVersion(k, "uid", text+text[:i+1])) {
				t.Errorf("a version of another length parses, at %d", i)
			}
		}
	}
}

func second(_ base, ok bool) bool { return ok }

func TestValues(t *testing.T) {
	t.Parallel()
	l := newLayout("prefix")
	res := resource("a", "uid", nil)
	data, err := codec.Encode(res)
	if err != nil {
		t.Fatal(err)
	}
	kv := &mvccpb.KeyValue{Key: l.resource(key.Of(res.Id)), Value: append(appendHeader(nil, token{1, 2}), data...), ModRevision: 3}
	k, got, err := l.decode(kv)
	if err != nil || k != key.Of(res.Id) || tokenOf(kv.Value) != (token{1, 2}) {
		t.Fatalf("%v, %v, token %x", k, err, tokenOf(kv.Value))
	}
	got.Version = ""
	if !proto.Equal(got, res) {
		t.Errorf("got %v, want %v", got, res)
	}
	for name, broken := range map[string]*mvccpb.KeyValue{
		"a value of a later format": {Key: kv.Key, Value: append([]byte{2}, kv.Value[1:]...)},
		"a short value":             {Key: kv.Key, Value: kv.Value[:5]},
		"a key of another store":    {Key: append([]byte("x"), kv.Key...), Value: kv.Value},
		"a key with parts missing":  {Key: append(bytes.Clone(l.resources), "a\x00b"...), Value: kv.Value},
	} {
		if _, _, err := l.decode(broken); err == nil {
			t.Errorf("%s decodes", name)
		}
	}
}

func TestOwnerEntries(t *testing.T) {
	t.Parallel()
	l := newLayout("prefix")
	owner := key.Key{Group: "g", Kind: "k", Name: "owner"}.ID("owner-uid", "v1")
	child := resource("a", "uid", owner)
	for _, gv := range []string{"", "v1", "v\x001", strings.Repeat("v", longGroupVersion), strings.Repeat("v", longGroupVersion+1)} {
		child.Id.Type.GroupVersion = gv
		kv := &mvccpb.KeyValue{Key: []byte(l.entryKey(entryOf(child).owner, key.Of(child.Id))), Value: entryValue(child.Id)}
		id, lookUp, err := l.parseEntry(kv)
		if err != nil || lookUp != (len(gv) > longGroupVersion) {
			t.Fatalf("group version of %d bytes: look up %v, %v", len(gv), lookUp, err)
		}
		if lookUp {
			id.Type.GroupVersion = gv
		}
		if !proto.Equal(id, child.Id) {
			t.Errorf("got %v, want %v", id, child.Id)
		}
	}
	// These owners differ only in the boundary between name and uid.
	one, two := key.Key{Group: "g", Kind: "k", Name: "ab"}, key.Key{Group: "g", Kind: "k", Name: "a"}
	if ownerHash(one, "c") == ownerHash(two, "bc") {
		t.Error("two owners have one hash")
	}
}

func TestCursors(t *testing.T) {
	t.Parallel()
	var s source
	for _, p := range []position{endOf(5), {5, "a\x00b\x00\x00\x00c"}} {
		got, err := s.Decode(s.Encode(p))
		if err != nil || got != p {
			t.Errorf("%+v decodes as %+v, %v", p, got, err)
		}
	}
	if !(position{5, "a"}).less(endOf(5)) || !endOf(4).less(position{5, "a"}) || endOf(5).less(endOf(5)) {
		t.Error("positions have the wrong order")
	}
}
