package manifest

import (
	"bytes"
	"strings"

	"github.com/ashlar-dev/storage/internal/jsonpb"
	"github.com/ashlar-dev/storage/resourcepb"
)

// floatTypes are the payloads whose numbers are 64-bit floating point, as suffixes of the type URL.
var floatTypes = []string{"/google.protobuf.Struct", "/google.protobuf.Value", "/google.protobuf.ListValue"}

// readResource reads a document that contains a resource.
func readResource(n *node, defaults Defaults) (*Object, error) {
	if data := n.get("data"); data != nil {
		if typ := data.get("@type"); typ != nil {
			for _, end := range floatTypes {
				if strings.HasSuffix(typ.text, end) {
					if err := checkNumbers(data); err != nil {
						return nil, err
					}
				}
			}
		}
	}
	var text bytes.Buffer
	n.json(&text)
	res, err := jsonpb.Unmarshal(text.Bytes())
	if err != nil {
		return nil, errAt(n.line, "%w", err)
	}
	if res.Id.Tenancy == nil {
		res.Id.Tenancy = &resourcepb.Tenancy{Partition: defaults.Partition, Namespace: defaults.Namespace}
	}
	o := &Object{Resource: res}
	if owner := res.Owner; owner != nil {
		if owner.Tenancy == nil {
			owner.Tenancy = &resourcepb.Tenancy{Partition: res.Id.Tenancy.Partition, Namespace: res.Id.Tenancy.Namespace}
		}
		if owner.Uid == "" {
			o.Owners, res.Owner = []*resourcepb.ID{owner}, nil
		}
	}
	return o, nil
}
