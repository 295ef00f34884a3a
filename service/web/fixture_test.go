package web_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// schema is a payload with a field of every kind. The program has only its descriptor.
const schema = `
name: "demo/v1/album.proto" package: "demo.v1" syntax: "proto3"
dependency: "google/protobuf/any.proto" dependency: "google/protobuf/duration.proto" dependency: "google/protobuf/struct.proto"
dependency: "google/protobuf/timestamp.proto" dependency: "google/protobuf/wrappers.proto" dependency: "google/protobuf/field_mask.proto"
message_type {
  name: "Album"
  field { name: "title" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "total_plays" json_name: "totalPlays" number: 2 type: TYPE_UINT64 label: LABEL_OPTIONAL }
  field { name: "genre" number: 3 type: TYPE_ENUM type_name: ".demo.v1.Genre" label: LABEL_OPTIONAL }
  field { name: "tracks" number: 4 type: TYPE_MESSAGE type_name: ".demo.v1.Track" label: LABEL_REPEATED }
  field { name: "sequel" number: 5 type: TYPE_MESSAGE type_name: ".demo.v1.Album" label: LABEL_OPTIONAL }
  field { name: "charts" number: 6 type: TYPE_MESSAGE type_name: ".demo.v1.Album.ChartsEntry" label: LABEL_REPEATED }
  field { name: "sides" number: 7 type: TYPE_MESSAGE type_name: ".demo.v1.Album.SidesEntry" label: LABEL_REPEATED }
  field { name: "vinyl" number: 8 type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "disc" number: 9 type: TYPE_INT32 label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "cover" number: 10 type: TYPE_BYTES label: LABEL_OPTIONAL }
  field { name: "rating" number: 11 type: TYPE_DOUBLE label: LABEL_OPTIONAL }
  field { name: "released" number: 12 type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp" label: LABEL_OPTIONAL }
  field { name: "length" number: 13 type: TYPE_MESSAGE type_name: ".google.protobuf.Duration" label: LABEL_OPTIONAL }
  field { name: "extra" number: 14 type: TYPE_MESSAGE type_name: ".google.protobuf.Struct" label: LABEL_OPTIONAL }
  field { name: "value" number: 15 type: TYPE_MESSAGE type_name: ".google.protobuf.Value" label: LABEL_OPTIONAL }
  field { name: "price" number: 16 type: TYPE_MESSAGE type_name: ".google.protobuf.Int64Value" label: LABEL_OPTIONAL }
  field { name: "mask" number: 17 type: TYPE_MESSAGE type_name: ".google.protobuf.FieldMask" label: LABEL_OPTIONAL }
  field { name: "inside" number: 18 type: TYPE_MESSAGE type_name: ".google.protobuf.Any" label: LABEL_OPTIONAL }
  field { name: "live" number: 19 type: TYPE_BOOL label: LABEL_OPTIONAL proto3_optional: true oneof_index: 1 }
  field { name: "old" number: 20 type: TYPE_SINT64 label: LABEL_REPEATED options { deprecated: true } }
  nested_type { name: "ChartsEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_UINT32 label: LABEL_OPTIONAL } }
  nested_type { name: "SidesEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_MESSAGE type_name: ".demo.v1.Track" label: LABEL_OPTIONAL } }
  oneof_decl { name: "medium" }
  oneof_decl { name: "_live" }
}
message_type { name: "Track" field { name: "title" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL } }
enum_type { name: "Genre" value { name: "GENRE_UNKNOWN" number: 0 } value { name: "GENRE_JAZZ" number: 1 } }
source_code_info { location { path: [4, 0] span: [0, 0, 0] leading_comments: " A record.\n" } }
`

// everything is the JSON of a payload with all fields except the other field of the oneof.
const everything = `{"title":"Ω <b>","totalPlays":"18446744073709551615","genre":"GENRE_JAZZ","tracks":[{"title":"a"},{}],` +
	`"sequel":{"title":"two","sequel":{}},"charts":{"de":7,"fr":1},"sides":{"-1":{"title":"b"}},"disc":-3,"cover":"AP8=","rating":"NaN",` +
	`"released":"2024-01-02T03:04:05.000000006Z","length":"-1.500s","extra":{"a":[1,null]},"value":null,"price":"9223372036854775807",` +
	`"mask":"a.bC","inside":{"@type":"type.googleapis.com/google.protobuf.Duration","value":"1s"},"live":false,"old":["-5"]}`

func albumMessage(t testing.TB) protoreflect.MessageType {
	t.Helper()
	file := &descriptorpb.FileDescriptorProto{}
	require.NoError(t, prototext.Unmarshal([]byte(schema), file))
	desc, err := protodesc.NewFile(file, protoregistry.GlobalFiles)
	require.NoError(t, err)
	return dynamicpb.NewMessageType(desc.Messages().ByName("Album"))
}

func typeOf(kind string) *resourcepb.Type {
	return &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: kind}
}

// catalog has types of all scopes: Album in a namespace, Label in a partition, with a free-form payload, and Studio in the cluster.
func catalog(t testing.TB) *registry.Registry {
	t.Helper()
	album := albumMessage(t)
	types, err := registry.New(
		registry.Type{
			Type: typeOf("Album"), Proto: album.New().Interface(), Scope: registry.ScopeNamespace,
			Validate: func(res *resourcepb.Resource) error {
				if res.GetMetadata()["bad"] != "" {
					return errors.New("it is bad")
				}
				return nil
			},
			MayRead: func(c registry.Caller, id *resourcepb.ID, _ *resourcepb.Resource) error {
				if id.GetName() == "secret" && c != reader("root") {
					return registry.ErrDenied
				}
				return nil
			},
		},
		registry.Type{Type: typeOf("Label"), Proto: &structpb.Struct{}, Scope: registry.ScopePartition},
		registry.Type{Type: typeOf("Studio"), Proto: &resourcepb.Reference{}, Scope: registry.ScopeCluster},
	)
	require.NoError(t, err)
	return types
}

// reader is a caller whose token grants its permissions.
type reader string

func (r reader) OperatorRead() error { return nil }

func (r reader) OperatorWrite() error {
	if r == "guest" {
		return registry.ErrDenied
	}
	return nil
}

// unknownFields are the bytes of a field that no linked message has.
func unknownFields(t testing.TB) []byte {
	t.Helper()
	other, err := proto.Marshal(&descriptorpb.FileOptions{GoPackage: proto.String("x"), CcGenericServices: proto.Bool(true), PhpNamespace: proto.String("p")})
	require.NoError(t, err)
	return other
}
