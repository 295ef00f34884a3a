package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage/internal/jsonpb"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// codecs are the codecs of the payloads of a registry's types.
type codecs struct {
	messages map[string]protoreflect.MessageType // by the name of the type
	resolver payloadResolver
}

func newCodecs(types *registry.Registry) codecs {
	f := codecs{messages: map[string]protoreflect.MessageType{}, resolver: payloadResolver{}}
	for _, t := range types.Types() {
		m := t.Proto.ProtoReflect().Type()
		f.messages[registry.Name(t.Type)] = m
		f.resolver[m.Descriptor().FullName()] = m
	}
	return f
}

func (f codecs) of(t *resourcepb.Type) codec { return codec{f.messages[registry.Name(t)], f.resolver} }
func (f codecs) open() codec                 { return codec{nil, f.resolver} }

// codec is how the payload of a type looks in JSON.
type codec struct {
	message  protoreflect.MessageType // nil in an open registry
	resolver payloadResolver
}

// encode returns a payload as compact JSON. If it is the type's message, it has no @type.
func (f codec) encode(data *anypb.Any) ([]byte, error) {
	text, err := jsonpb.MarshalPayload(data, f.resolver)
	if err != nil || f.message == nil || data.MessageName() != f.message.Descriptor().FullName() {
		return text, err
	}
	fields, err := membersOf(text)
	if err != nil {
		return nil, err
	}
	switch {
	case len(fields) == 0 || fields[0].name != "@type":
		return text, nil
	case len(fields) == 1:
		return []byte("{}"), nil
	case fields[1].name == "@value":
		return text, nil // its bytes, which are of no use without the type
	}
	return append([]byte("{"), text[fields[1].key:]...), nil
}

// decode returns the payload that stands at a place in a body.
func (f codec) decode(body []byte, at textRange) (*anypb.Any, error) {
	text := body[at.start:at.end]
	fields, err := membersOf(text)
	if err != nil {
		return nil, badBody(body, at.start, "data is not an object")
	}
	data, err := jsonpb.ParseOpaque(text)
	if err != nil {
		return nil, badBody(body, at.start, "%v", err)
	}
	if data != nil {
		return data, nil
	}
	for _, field := range fields {
		if field.name == "@type" {
			data := new(anypb.Any)
			return data, f.read(blankOutside(body, at), data)
		}
	}
	if f.message == nil && len(fields) == 0 {
		return &anypb.Any{}, nil // which is shown in this way
	}
	if f.message == nil {
		return nil, badBody(body, at.start, `data has no "@type", which says what message it is`)
	}
	if usesValueField(f.message.Descriptor()) {
		if len(fields) != 1 || fields[0].name != "value" {
			return nil, badBody(body, at.start, `data has other fields than "value", where all of a %s is`, f.message.Descriptor().FullName())
		}
		at = textRange{at.start + fields[0].value.start, at.start + fields[0].value.end}
	}
	m := f.message.New().Interface()
	if err := f.read(blankOutside(body, at), m); err != nil {
		return nil, err
	}
	data = new(anypb.Any)
	if err := anypb.MarshalFrom(data, m, proto.MarshalOptions{Deterministic: true}); err != nil {
		return nil, fmt.Errorf("encode the payload: %w", err)
	}
	return data, nil
}

// read reads a message from a text, in which it stands where it does in the body.
func (f codec) read(text []byte, m proto.Message) error {
	if err := (protojson.UnmarshalOptions{Resolver: f.resolver}).Unmarshal(text, m); err != nil {
		return refuse(http.StatusBadRequest, "body invalid: %s", cleanMessage(err))
	}
	return nil
}

// usesValueField reports whether a message has a JSON form of its own, which inside an Any stands in a field "value".
func usesValueField(m protoreflect.MessageDescriptor) bool { return wellKnown[m.FullName()] != nil }

// payloadResolver are the payload messages of a registry, as a resolver; it finds what the program links, too.
type payloadResolver map[protoreflect.FullName]protoreflect.MessageType

func (k payloadResolver) FindMessageByName(name protoreflect.FullName) (protoreflect.MessageType, error) {
	if m, ok := k[name]; ok {
		return m, nil
	}
	return protoregistry.GlobalTypes.FindMessageByName(name)
}

func (k payloadResolver) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	return k.FindMessageByName((&anypb.Any{TypeUrl: url}).MessageName())
}

func (k payloadResolver) FindExtensionByName(name protoreflect.FullName) (protoreflect.ExtensionType, error) {
	return protoregistry.GlobalTypes.FindExtensionByName(name)
}

func (k payloadResolver) FindExtensionByNumber(message protoreflect.FullName, n protoreflect.FieldNumber) (protoreflect.ExtensionType, error) {
	return protoregistry.GlobalTypes.FindExtensionByNumber(message, n)
}

// textRange is a part of a text.
type textRange struct{ start, end int }

// member is a member of a JSON object.
type member struct {
	name  string
	key   int // where its name begins
	value textRange
}

// membersOf returns the members of a JSON object, in order.
func membersOf(text []byte) ([]member, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, fmt.Errorf("%.20q is no object", text)
	}
	var members []member
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return nil, err
		}
		name, _ := token.(string)
		m := member{name: name, key: bytes.LastIndexAny(text[:dec.InputOffset()-1], `"`)}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, err
		}
		m.value = textRange{int(dec.InputOffset()) - len(value), int(dec.InputOffset())}
		members = append(members, m)
	}
	return members, nil
}
