package jsonpb_test

import (
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"github.com/ashlar-dev/storage/internal/jsonpb"
	"github.com/ashlar-dev/storage/resourcepb"
)

func pack(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	data, err := anypb.New(m)
	require.NoError(t, err)
	return data
}

func TestPayloadRoundTrip(t *testing.T) {
	t.Parallel()
	unknownField := protowire.AppendVarint(protowire.AppendTag(nil, 999, protowire.VarintType), 7)
	partly := &resourcepb.Tombstone{Owner: &resourcepb.ID{Name: "x"}}
	partly.Owner.ProtoReflect().SetUnknown(unknownField)
	nested := &anypb.Any{}
	for range 1000 {
		nested = pack(t, nested)
	}
	inside := pack(t, &anypb.Any{TypeUrl: "type.googleapis.com/no.such.Message", Value: []byte{1}})
	for name, tc := range map[string]struct {
		data *anypb.Any
		want string
	}{
		"none":                 {nil, `{"version":"v"}`},
		"empty":                {&anypb.Any{}, `{"version":"v","data":{}}`},
		"known":                {pack(t, &resourcepb.Tombstone{Owner: &resourcepb.ID{Name: "x"}}), `{"version":"v","data":{"@type":"type.googleapis.com/ashlar.resource.v1.Tombstone","owner":{"name":"x"}}}`},
		"well known":           {pack(t, structpb.NewStringValue("s")), `{"version":"v","data":{"@type":"type.googleapis.com/google.protobuf.Value","value":"s"}}`},
		"unknown type":         {&anypb.Any{TypeUrl: "example.com/no.such.Message", Value: []byte("\x00\xffa")}, `{"version":"v","data":{"@type":"example.com/no.such.Message","@value":"AP9h"}}`},
		"unknown, no content":  {&anypb.Any{TypeUrl: "example.com/no.such.Message"}, `{"version":"v","data":{"@type":"example.com/no.such.Message","@value":""}}`},
		"no type":              {&anypb.Any{Value: []byte{1}}, `{"version":"v","data":{"@type":"","@value":"AQ=="}}`},
		"broken":               {&anypb.Any{TypeUrl: "type.googleapis.com/google.protobuf.Struct", Value: []byte{0xff}}, `{"version":"v","data":{"@type":"type.googleapis.com/google.protobuf.Struct","@value":"/w=="}}`},
		"unknown field":        {pack(t, partly), ""},
		"unknown type inside":  {inside, ""},
		"unknown field inside": {pack(t, pack(t, partly)), ""},
		"nested too deeply":    {nested, `{"version":"v","data":{"@type":"` + nested.TypeUrl + `","@value":"` + base64.StdEncoding.EncodeToString(nested.Value) + `"}}`},
		"not in JSON":          {pack(t, &timestamppb.Timestamp{Seconds: -1 << 62}), ""},
	} {
		res := &resourcepb.Resource{Version: "v", Data: tc.data}
		text, err := jsonpb.Marshal(res)
		require.NoError(t, err, name)
		if tc.want != "" {
			require.Equal(t, tc.want, string(text), name)
		}
		back, err := jsonpb.Unmarshal(text)
		require.NoError(t, err, name)
		require.True(t, proto.Equal(res, back), "%s: %s", name, text)
	}
}

// Only the exact output of Opaque is a payload as bytes; similar objects are not.
func TestOpaqueIsExact(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"@TYPE":"a/b","@VALUE":"AA=="}`, `{"@type":"a/b","@value":"AA==","@type":"c/d"}`, `{"@type":"a/b","@value":"AA==","@value":"AQ=="}`,
		`{"@value":"AA=="}`, `{"@type":"a/b"}`, `{"@type":null,"@value":"AA=="}`, `{"@type":"a/b","@value":{}}`, `{"@type":"a/b","@value":"AA==","x":1}`,
		"{\"@type\":\"a/\xff\",\"@value\":\"AA==\"}", `[]`, ``, `{"@type":"a/b"`,
	} {
		data, err := jsonpb.ParseOpaque([]byte(text))
		require.NoError(t, err, text)
		require.Nil(t, data, text)
	}
	data, err := jsonpb.ParseOpaque([]byte(` {"@value": "AA==", "@type": "a/b"} `))
	require.NoError(t, err)
	require.True(t, proto.Equal(&anypb.Any{TypeUrl: "a/b", Value: []byte{0}}, data))
}

func TestEvents(t *testing.T) {
	t.Parallel()
	res := &resourcepb.Resource{Version: "v", Data: &anypb.Any{TypeUrl: "a/b", Value: []byte("c")}}
	for want, ev := range map[string]*resourcepb.WatchEvent{
		`{"upsert":{"resource":{"version":"v","data":{"@type":"a/b","@value":"Yw=="}}}}`: {
			Event: &resourcepb.WatchEvent_Upsert_{Upsert: &resourcepb.WatchEvent_Upsert{Resource: res}},
		},
		`{"delete":{"resource":{"version":"v","data":{"@type":"a/b","@value":"Yw=="}}}}`: {
			Event: &resourcepb.WatchEvent_Delete_{Delete: &resourcepb.WatchEvent_Delete{Resource: res}},
		},
		`{"upsert":{"resource":{"version":"v","data":{"@type":"a/b","@value":"Yw=="}}},"more":true}`: {
			Event: &resourcepb.WatchEvent_Upsert_{Upsert: &resourcepb.WatchEvent_Upsert{Resource: res}}, More: true,
		},
		`{"bookmark":{}}`: {Event: &resourcepb.WatchEvent_Bookmark_{Bookmark: &resourcepb.WatchEvent_Bookmark{}}},
		`{"bookmark":{"cursor":"AbC"}}`: {
			Event: &resourcepb.WatchEvent_Bookmark_{Bookmark: &resourcepb.WatchEvent_Bookmark{Cursor: "AbC"}},
		},
		`{"endOfSnapshot":{}}`: {Event: &resourcepb.WatchEvent_EndOfSnapshot_{EndOfSnapshot: &resourcepb.WatchEvent_EndOfSnapshot{}}},
	} {
		got, err := jsonpb.MarshalEvent(ev)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
	_, err := jsonpb.MarshalEvent(&resourcepb.WatchEvent{})
	require.Error(t, err)
}

// Any text survives the round trip through YAML, also with YAML 1.1 readers, which treat more words as booleans and numbers. A bare
// word therefore contains only letters.
func TestYAMLKeepsText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(
			rapid.String(),
			rapid.StringMatching(`[ -~\n]{0,40}`),
			rapid.SampledFrom([]string{"yes", "Off", "y", "null", "~", "1e3", "0x1", "1:30", "a: b", "- a", "#", " a\n b\n", "a\n\n", "\n", "<<", "=", "2024-01-01", "a \nb\n", "--- a", "|", "a\n---\nb"}),
		).Draw(t, "text")
		want := structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"k" + s: structpb.NewStringValue(s)}})
		text, err := want.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		out, err := jsonpb.YAML(text)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]string
		if err := yaml.Unmarshal(out, &got); err != nil {
			t.Fatalf("%q was encoded as %q: %v", s, out, err)
		}
		if len(got) != 1 || got["k"+s] != s {
			t.Fatalf("%q was encoded as %q and decoded as %q", s, out, got)
		}
	})
}

func TestYAMLIsReadable(t *testing.T) {
	t.Parallel()
	out, err := jsonpb.YAML([]byte(`{"a":{"b":[1,2.5,1e+21,true,null,"x y"],"c":{},"d":[]},"script":"set -eu\n  run\n","yes":"no"}`))
	require.NoError(t, err)
	require.Equal(t, "a:\n  b:\n    - 1\n    - 2.5\n    - 1e+21\n    - true\n    - null\n    - x y\n  c: {}\n  d: []\n"+
		"script: |\n  set -eu\n    run\n\"yes\": \"no\"\n", string(out))
}
