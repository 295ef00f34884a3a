//go:build race

package tables

import (
	"crypto/sha256"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/resourcepb"
)

// digest detects changes to shared objects in builds with the race detector.
type digest [sha256.Size]byte

const checksDigests = true

// digestOf returns the digest of the content of an object.
func digestOf(encode func(object any) (*resourcepb.Resource, error), object any) digest {
	res, err := encode(object)
	if err != nil {
		return sha256.Sum256([]byte(err.Error()))
	}
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(res)
	if err != nil {
		return sha256.Sum256([]byte(err.Error()))
	}
	return sha256.Sum256(text)
}
