package dynamodb

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/ashlar-dev/storage/resourcepb"
)

func TestCompareSeq(t *testing.T) {
	t.Parallel()
	rising := []string{"", "@100", "@1000", "000000000000000000007", "12", "000000000000000000120", "99999999999999999999999999999", "100000000000000000000000000000", ended}
	for i, a := range rising {
		for k, b := range rising {
			if got := compareSeq(a, b); (got < 0) != (i < k) || (got > 0) != (i > k) {
				t.Errorf("%q and %q compare as %d", a, b, got)
			}
		}
	}
}

// A tree: a is read to its end, b and c are its children, d is b's, and e has no parent.
func TestHeirs(t *testing.T) {
	t.Parallel()
	l := newLineage()
	l.update(map[string]string{"a": "", "b": "a", "c": "a", "d": "b", "e": ""}, &position{})
	for _, c := range []struct {
		at   []place
		want []string
	}{
		{[]place{{"a", "5"}}, []string{"e"}},
		{[]place{{"a", ended}}, []string{"b", "c", "e"}},
		{[]place{{"a", ended}, {"b", "7"}, {"e", ended}}, []string{"c"}},
		{[]place{{"a", ended}, {"b", ended}, {"c", ""}, {"e", ""}}, []string{"d"}},
		{[]place{{"d", "1"}, {"e", "1"}}, []string{"c"}},
	} {
		children, roots, _ := l.heirs(&position{shards: c.at})
		heirs := append(children, roots...)
		slices.Sort(heirs)
		if !slices.Equal(heirs, c.want) {
			t.Errorf("at %v the heirs are %v, expected %v", c.at, heirs, c.want)
		}
	}
	p := &position{shards: []place{{"a", ended}, {"b", "7"}}}
	for _, c := range []struct {
		shard, seq string
		want       bool
	}{{"a", "99", true}, {"b", "7", true}, {"b", "8", false}, {"c", "1", false}, {"d", "1", false}} {
		if got := p.covers(l, c.shard, c.seq); got != c.want {
			t.Errorf("%v covers %s in %s: %v", p, c.seq, c.shard, got)
		}
	}
	ahead := &position{shards: []place{{"b", ended}, {"c", "3"}, {"d", "1"}}}
	if got := p.merge(l, ahead); !slices.Equal(got.shards, ahead.shards) {
		t.Errorf("merged to %v", got)
	}
	if got := ahead.merge(l, p); !slices.Equal(got.shards, ahead.shards) {
		t.Errorf("merged to %v", got)
	}
}

func FuzzDecodePosition(f *testing.F) {
	p := &position{stream: "arn:x", asOf: time.Unix(1234567890, 0), shards: []place{{"shard-1", "17"}, {"shard-2", ended}, {"shard-3", ""}}}
	f.Add(p.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decodePosition(b)
		if err != nil {
			return
		}
		again, err := decodePosition(p.encode())
		if err != nil || again.stream != p.stream || !slices.Equal(again.shards, p.shards) || !again.asOf.Equal(p.asOf) {
			t.Errorf("%v became %v: %v", p, again, err)
		}
	})
}

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

func TestPack(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 1023, 1024, 100_000, 1 << 20} {
		data := bytes.Repeat([]byte("abcdefgh"), size/8+1)[:size]
		packed := pack(data)
		if got, err := unpack(packed); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes do not come back: %v", size, err)
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
