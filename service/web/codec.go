package web

import (
	"bytes"
	"fmt"
	"net/http"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashlar-dev/storage/internal/jsonpb"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// codecs are the payload codecs of a registry's types.
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

// codec encodes and decodes the payload of a type as JSON.
type codec struct {
	message  protoreflect.MessageType // nil in an open registry
	resolver payloadResolver
}

// encode returns a payload as compact JSON, without @type if it is the type's message.
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
		return text, nil // its bytes, which are useless without the type
	}
	return append([]byte("{"), text[fields[1].key:]...), nil
}

// decode decodes the payload in a range of a body.
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
		return &anypb.Any{}, nil // encode writes it in this form
	}
	var m proto.Message = &structpb.Struct{} // of an open registry
	switch {
	case f.message == nil:
	case usesValueField(f.message.Descriptor()):
		if len(fields) != 1 || fields[0].name != "value" {
			return nil, badBody(body, at.start, `data has other fields than "value", which has the whole %s`, f.message.Descriptor().FullName())
		}
		at = textRange{at.start + fields[0].value.start, at.start + fields[0].value.end}
		m = f.message.New().Interface()
	default:
		m = f.message.New().Interface()
	}
	if err := f.read(blankOutside(body, at), m); err != nil {
		return nil, err
	}
	data = new(anypb.Any)
	if err := anypb.MarshalFrom(data, m, proto.MarshalOptions{Deterministic: true}); err != nil {
		return nil, fmt.Errorf("encode the payload: %w", err)
	}
	return data, nil
}

// read decodes a message from a text with the positions of the body.
func (f codec) read(text []byte, m proto.Message) error {
	resolver := &missResolver{payloadResolver: f.resolver}
	switch err := (protojson.UnmarshalOptions{Resolver: resolver}).Unmarshal(text, m); {
	case err != nil && resolver.notFound:
		return contradiction("body invalid: %s", cleanMessage(err))
	case err != nil:
		return refuse(http.StatusBadRequest, "body invalid: %s", cleanMessage(err))
	}
	return nil
}

// missResolver is a resolver that notes whether it did not find a message.
type missResolver struct {
	payloadResolver
	notFound bool
}

func (r *missResolver) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	m, err := r.payloadResolver.FindMessageByURL(url)
	r.notFound = r.notFound || err != nil
	return m, err
}

// usesValueField reports whether a message has a special JSON form, which is in a field "value" within an Any.
func usesValueField(m protoreflect.MessageDescriptor) bool { return wellKnown[m.FullName()] != nil }

// payloadResolver resolves the payload messages of a registry, and those that the program links.
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

// resource decodes a resource from a body.
func (f codec) resource(body []byte) (*resourcepb.Resource, error) {
	members, err := membersOf(body)
	if err != nil {
		return nil, badBody(body, 0, "expected an object")
	}
	var data *textRange
	for _, m := range members {
		if m.name != "data" {
			continue
		}
		if data != nil {
			return nil, badBody(body, m.key, `duplicate field "data"`)
		}
		data = &m.value
	}
	res := new(resourcepb.Resource)
	if data == nil || string(body[data.start:data.end]) == "null" {
		return res, f.read(body, res)
	}
	if body[data.start] != '{' {
		return nil, badBody(body, data.start, "data is not an object")
	}
	if err := f.read(blankObject(body, *data), res); err != nil {
		return nil, err
	}
	res.Data, err = f.decode(body, *data)
	return res, err
}

// status decodes a status from a body.
func (f codec) status(body []byte) (*resourcepb.Status, error) {
	written := new(resourcepb.Status)
	return written, f.read(body, written)
}

// encodeResource returns a resource as compact JSON.
func (f codec) encodeResource(res *resourcepb.Resource) ([]byte, error) {
	return jsonpb.MarshalWith(res, f.encode)
}

// encodeEvent returns an event as compact JSON, or nil for an unknown kind of event.
func (f codec) encodeEvent(ev *resourcepb.WatchEvent) ([]byte, error) {
	var out bytes.Buffer
	var err error
	resource := func(name string, res *resourcepb.Resource) {
		var text []byte
		if text, err = f.encodeResource(res); err == nil {
			fmt.Fprintf(&out, `{"%s":{"resource":%s}`, name, text)
		}
	}
	switch e := ev.GetEvent().(type) {
	case *resourcepb.WatchEvent_Upsert_:
		resource("upsert", e.Upsert.GetResource())
	case *resourcepb.WatchEvent_Delete_:
		resource("delete", e.Delete.GetResource())
	case *resourcepb.WatchEvent_EndOfSnapshot_:
		out.WriteString(`{"endOfSnapshot":{}`)
	case *resourcepb.WatchEvent_Bookmark_:
		fmt.Fprintf(&out, `{"bookmark":{"cursor":%s}`, quote(e.Bookmark.GetCursor()))
	default:
		return nil, nil // a kind of event that this version does not know
	}
	if err != nil {
		return nil, err
	}
	if ev.GetMore() {
		out.WriteString(`,"more":true`)
	}
	if before := ev.GetBefore(); before != nil {
		text, err := f.encodeResource(before)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&out, `,"before":%s`, text)
	}
	if cursor := ev.GetCursor(); cursor != "" {
		fmt.Fprintf(&out, `,"cursor":%s`, quote(cursor))
	}
	out.WriteString("}\n")
	return out.Bytes(), nil
}
