package dynamodb

import (
	"bytes"
	"testing"
	"time"

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
