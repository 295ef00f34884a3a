package codec

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
)

// Any bytes stored under a key are either a resource of this key with a uid, or damage that names the key.
func FuzzDecodeOf(f *testing.F) {
	res := full(f)
	data, err := Encode(res)
	if err != nil {
		f.Fatal(err)
	}
	at := key.Of(res.Id).Bytes()
	f.Add(at, data)
	f.Add(at, data[:len(data)/2])
	f.Add(at, []byte{})
	f.Add([]byte("g\x00k\x00p\x00n\x00other"), data)
	f.Add([]byte("no key"), data)
	f.Fuzz(func(t *testing.T, at, data []byte) {
		res, err := DecodeAt(at, data, "version")
		k, bad := key.Parse(at)
		if bad != nil {
			if err == nil {
				t.Fatalf("DecodeAt(%q), which is no key, returned %v", at, res)
			}
			return
		}
		again, againErr := DecodeOf(k, data, "version")
		if (err == nil) != (againErr == nil) || !proto.Equal(res, again) {
			t.Fatalf("by its bytes the key has %v, %v, otherwise %v, %v", res, err, again, againErr)
		}
		var damaged *storage.DamagedError
		switch {
		case err == nil && (key.Of(res.Id) != k || res.Id.Uid == "" || res.Version != "version"):
			t.Errorf("under %v: %v", k, res)
		case err != nil && (!errors.As(err, &damaged) || key.Of(damaged.ID) != k || damaged.Version != "version"):
			t.Errorf("under %v: %v, expected a DamagedError that names it", k, err)
		case err == nil:
			// A decoded resource can be encoded again.
			data, err := Encode(res)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := DecodeOf(k, data, "version"); err != nil || !proto.Equal(again, res) {
				t.Errorf("%v was decoded again as %v, %v", res, again, err)
			}
		}
	})
}
