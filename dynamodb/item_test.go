package dynamodb

import (
	"bytes"
	"testing"
)

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
