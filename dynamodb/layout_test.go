package dynamodb

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

func TestPack(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 1023, 1024, 100_000, 1 << 20} {
		data := bytes.Repeat([]byte("abcdefgh"), size/8+1)[:size]
		packed := pack(data)
		if got, err := unpack(packed); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes are not restored: %v", size, err)
		}
		if size >= compressFrom && len(packed) > size/4 {
			t.Errorf("%d bytes take %d", size, len(packed))
		}
	}
	for _, bad := range [][]byte{nil, {7, 1}, {codecZstd, 1, 2, 3}} {
		if _, err := unpack(bad); err == nil {
			t.Errorf("%v was unpacked", bad)
		}
	}
}

func FuzzParseVersion(f *testing.F) {
	s := (*versionRing)(nil).next(time.Unix(1234567890, 0))
	s.setOwner(&resourcepb.ID{}, &resourcepb.ID{Uid: "u"})
	f.Add(s.version())
	f.Add(s.next(time.Now()).version() + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, ok := parseVersion(text)
		if ok && s.version() != text {
			t.Errorf("%q is read as %q", text, s.version())
		}
	})
}

func TestStampChain(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var chain []*versionRing
	var last *versionRing
	for range 12 {
		last = last.next(now)
		chain = append(chain, last)
	}
	for i, s := range chain {
		if i > 0 && s.count <= chain[i-1].count {
			t.Errorf("the count did not rise")
		}
		if got, want := last.follows(s.token), i >= len(chain)-1-ringSize; got != want {
			t.Errorf("the last version follows number %d of %d: %v", i, len(chain), got)
		}
	}
	parsed, ok := parseVersion(last.version())
	if !ok || !bytes.Equal(parsed.bytes(), last.bytes()) {
		t.Error("a version is not restored")
	}
}

// The writes of 1,000 resources with rising names are spread so evenly that 10,000 writes a second of two units each need less than a
// partition's 1,000 in every bucket of 32.
func TestBucketsShareWrites(t *testing.T) {
	t.Parallel()
	const resources, writes = 1000, 10_000
	l := layout{prefix: "test", buckets: defaultBuckets}
	load := map[string]int{}
	for i := range resources {
		k := key.Key{Group: "g", Kind: "k", Partition: "default", Namespace: "default", Name: fmt.Sprintf("01KB%022d", i)}
		it := l.resource(k)
		if back, err := l.keyOf(it); err != nil || back != k {
			t.Fatalf("the key of %v is %v, %v", k, back, err)
		}
		load[string(it.bytes(attrPK))] += writes / resources
	}
	for pk, n := range load {
		if 2*n >= 1000 {
			t.Errorf("%q takes %d writes a second", pk, n)
		}
	}
	if len(load) != defaultBuckets {
		t.Errorf("%d buckets are used", len(load))
	}
}
