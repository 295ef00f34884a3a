package dynamodb

import (
	"bytes"
	"testing"
	"time"

	"github.com/ashlar-dev/storage/resourcepb"
)

func FuzzParseVersion(f *testing.F) {
	s := (*stamp)(nil).next(time.Unix(1234567890, 0))
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
	var chain []*stamp
	var last *stamp
	for range 12 {
		last = last.next(now)
		chain = append(chain, last)
	}
	for i, s := range chain {
		if i > 0 && s.count <= chain[i-1].count {
			t.Errorf("the count does not rise")
		}
		if got, want := last.follows(s.token), i >= len(chain)-1-ringSize; got != want {
			t.Errorf("the last stamp follows number %d of %d: %v", i, len(chain), got)
		}
	}
	parsed, ok := parseVersion(last.version())
	if !ok || !bytes.Equal(parsed.bytes(), last.bytes()) {
		t.Error("a version does not come back")
	}
}
