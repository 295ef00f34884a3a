package manifest_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/manifest"
	"github.com/ashlar-dev/storage/internal/jsonpb"
)

// Every document that is read without an error can be written as JSON and as YAML, and read back unchanged.
func FuzzRead(f *testing.F) {
	f.Add([]byte("apiVersion: v1\nkind: A\nmetadata: {name: a, labels: {x: 'y'}}\nspec: {n: 1.5, s: \" x\\n\", y: yes, o: 0644}\n"))
	f.Add([]byte(`{"id":{"name":"a","type":{"group":"g","kind":"k"}},"data":{"@type":"t/x.Y","@value":"AAE="}}`))
	f.Add([]byte("a: &a [*a]\n<<: {b: *a}\n"))
	f.Add([]byte("---\n---\n{\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		objects, err := manifest.Read("f", bytes.NewReader(data), defaults)
		if err != nil {
			return
		}
		for _, o := range objects {
			if o.Resource.Owner == nil && len(o.Owners) > 0 {
				o.Resource.Owner = o.Owners[0]
			}
			text, err := jsonpb.Marshal(o.Resource)
			require.NoError(t, err)
			yaml, err := jsonpb.YAML(text)
			require.NoError(t, err)
			for _, written := range [][]byte{text, yaml} {
				again, err := manifest.Read("g", bytes.NewReader(written), defaults)
				require.NoError(t, err, "%s", written)
				require.Len(t, again, 1)
				if again[0].Resource.Owner == nil && len(again[0].Owners) > 0 {
					again[0].Resource.Owner = again[0].Owners[0]
				}
				require.True(t, proto.Equal(o.Resource, again[0].Resource), "%v\n%v\n%s", o.Resource, again[0].Resource, written)
			}
		}
	})
}
