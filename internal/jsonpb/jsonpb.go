// Package jsonpb encodes resources and events as protojson on one line, and decodes resources.
//
// Protojson cannot encode a payload whose type the program does not know, and drops unknown fields. Such a payload is written as
// its bytes, so nothing is lost on the round trip:
//
//	"data":{"@type":"type.googleapis.com/some.Message","@value":"CgNhYmM="}
package jsonpb

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// opaque is a payload as bytes.
type opaque struct {
	Type  string `json:"@type"`
	Value string `json:"@value"`
}

// Marshal returns res as compact, deterministic protojson. A nil resource is {}.
func Marshal(res *resourcepb.Resource) ([]byte, error) {
	return MarshalWith(res, func(data *anypb.Any) ([]byte, error) { return MarshalPayload(data, nil) })
}

// Resolver finds the message types of payloads and of the messages inside them.
type Resolver interface {
	protoregistry.MessageTypeResolver
	protoregistry.ExtensionTypeResolver
}

// MarshalWith is Marshal with another encoding of payloads: payload returns the JSON of one.
func MarshalWith(res *resourcepb.Resource, payload func(*anypb.Any) ([]byte, error)) ([]byte, error) {
	if res.GetData() == nil {
		return compact(res)
	}
	rest := codec.WithVersion(res, res.GetVersion())
	rest.Data = nil
	text, err := compact(rest)
	if err != nil {
		return nil, err
	}
	data, err := payload(res.GetData())
	if err != nil {
		return nil, err
	}
	// The payload is added at the end.
	text = bytes.TrimSuffix(text, []byte("}"))
	if len(text) > 1 {
		text = append(text, ',')
	}
	text = append(text, `"data":`...)
	text = append(text, data...)
	return append(text, '}'), nil
}

// MarshalPayload returns a payload with its @type: by its fields if protojson can encode all of it, otherwise as bytes. A nil
// resolver knows the types linked into the program.
func MarshalPayload(data *anypb.Any, known Resolver) ([]byte, error) {
	if known == nil {
		known = protoregistry.GlobalTypes
	}
	if text := byFields(data, known); text != nil {
		return text, nil
	}
	return Opaque(data)
}

// Opaque returns a payload as bytes.
func Opaque(data *anypb.Any) ([]byte, error) {
	text, err := json.Marshal(opaque{Type: data.GetTypeUrl(), Value: base64.StdEncoding.EncodeToString(data.GetValue())})
	if err != nil {
		return nil, fmt.Errorf("render a payload: %w", err)
	}
	return text, nil
}

// ParseOpaque is the inverse of Opaque. It returns nil if the text is no payload as bytes: an object with exactly the two members,
// each once.
func ParseOpaque(text []byte) (*anypb.Any, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') || !utf8.Valid(text) {
		return nil, nil
	}
	members := map[any]string{}
	for dec.More() {
		name, _ := dec.Token()
		value, _ := dec.Token()
		encoded, ok := value.(string)
		if _, twice := members[name]; twice || !ok || name != "@type" && name != "@value" {
			return nil, nil
		}
		members[name] = encoded
	}
	if len(members) != 2 {
		return nil, nil
	}
	value, err := base64.StdEncoding.DecodeString(members["@value"])
	if err != nil {
		return nil, errors.New("data.@value is not base64")
	}
	return &anypb.Any{TypeUrl: members["@type"], Value: value}, nil
}

// MarshalEvent returns ev as compact, deterministic protojson.
func MarshalEvent(ev *resourcepb.WatchEvent) ([]byte, error) {
	var name string
	var res *resourcepb.Resource
	switch e := ev.GetEvent().(type) {
	case *resourcepb.WatchEvent_Upsert_:
		name, res = "upsert", e.Upsert.GetResource()
	case *resourcepb.WatchEvent_Delete_:
		name, res = "delete", e.Delete.GetResource()
	case *resourcepb.WatchEvent_EndOfSnapshot_:
		return []byte(`{"endOfSnapshot":{}}`), nil
	case *resourcepb.WatchEvent_Bookmark_:
		if e.Bookmark.GetCursor() == "" {
			return []byte(`{"bookmark":{}}`), nil
		}
		cursor, err := json.Marshal(e.Bookmark.GetCursor())
		if err != nil {
			return nil, fmt.Errorf("render a bookmark: %w", err)
		}
		return fmt.Appendf(nil, `{"bookmark":{"cursor":%s}}`, cursor), nil
	default:
		return nil, fmt.Errorf("render an event: unknown kind %T", e)
	}
	text, err := Marshal(res)
	if err != nil {
		return nil, err
	}
	more := ""
	if ev.GetMore() {
		more = `,"more":true`
	}
	return fmt.Appendf(nil, `{"%s":{"resource":%s}%s}`, name, text, more), nil
}

// Unmarshal is the inverse of Marshal.
func Unmarshal(text []byte) (*resourcepb.Resource, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, fmt.Errorf("read a resource: %w", err)
	}
	var data *anypb.Any
	if raw, there := fields["data"]; there {
		var err error
		if data, err = ParseOpaque(raw); err != nil {
			return nil, err
		}
		if data != nil {
			delete(fields, "data")
			if text, err = json.Marshal(fields); err != nil {
				return nil, fmt.Errorf("read a resource: %w", err)
			}
		}
	}
	res := new(resourcepb.Resource)
	if err := protojson.Unmarshal(text, res); err != nil {
		return nil, errors.New(cleanse(err.Error()))
	}
	if data != nil {
		res.Data = data
	}
	return res, nil
}

// protoPrefix matches the prefix of protojson's errors: a position in an intermediate text, and a space that protojson varies on
// purpose.
var protoPrefix = regexp.MustCompile(`^proto:[\s\x{a0}]*(\(line \d+:\d+\):[\s\x{a0}]*)?`)

func cleanse(text string) string { return protoPrefix.ReplaceAllString(text, "") }

// compact returns protojson without its random spaces.
func compact(m proto.Message) ([]byte, error) {
	text, err := protojson.Marshal(m)
	if err != nil {
		return nil, errors.New("render a resource: " + cleanse(err.Error()))
	}
	return removeSpaces(text)
}

func removeSpaces(text []byte) ([]byte, error) {
	var out bytes.Buffer
	if err := json.Compact(&out, text); err != nil {
		return nil, fmt.Errorf("render a resource: %w", err)
	}
	return out.Bytes(), nil
}

// byFields returns a payload by its fields, or nil if protojson cannot encode all of it.
func byFields(data *anypb.Any, known Resolver) []byte {
	if data.GetTypeUrl() == "" {
		if len(data.GetValue()) == 0 {
			return []byte("{}")
		}
		return nil
	}
	m, err := anypb.UnmarshalNew(data, proto.UnmarshalOptions{Resolver: known})
	if err != nil || hasUnknown(m.ProtoReflect(), known, 0) {
		return nil
	}
	// An Any inside the payload may have an unknown type; a Struct may contain a number that JSON cannot express.
	text, err := protojson.MarshalOptions{Resolver: known}.Marshal(data)
	if err != nil {
		return nil
	}
	if text, err = removeSpaces(text); err != nil {
		return nil
	}
	return text
}

// maxPacked is the maximum depth of packed messages in a payload that is encoded by its fields. Each packed message is decoded once
// per level.
const maxPacked = 32

// hasUnknown reports whether m, a message in it, or a message packed in an Any in it, has fields that this program does not know.
// packed is the depth of m.
func hasUnknown(m protoreflect.Message, known Resolver, packed int) bool {
	if len(m.GetUnknown()) > 0 {
		return true
	}
	if m.Descriptor().FullName() == "google.protobuf.Any" {
		fields := m.Descriptor().Fields()
		data := &anypb.Any{TypeUrl: m.Get(fields.ByNumber(1)).String(), Value: m.Get(fields.ByNumber(2)).Bytes()}
		if data.GetTypeUrl() == "" {
			return false
		}
		if packed == maxPacked {
			return true
		}
		inside, err := anypb.UnmarshalNew(data, proto.UnmarshalOptions{Resolver: known})
		return err != nil || hasUnknown(inside.ProtoReflect(), known, packed+1)
	}
	found := false
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsMap():
			if fd.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
					found = hasUnknown(v.Message(), known, packed)
					return !found
				})
			}
		case fd.Message() == nil:
		case fd.IsList():
			for i := 0; i < v.List().Len() && !found; i++ {
				found = hasUnknown(v.List().Get(i).Message(), known, packed)
			}
		default:
			found = hasUnknown(v.Message(), known, packed)
		}
		return !found
	})
	return found
}
