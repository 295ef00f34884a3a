package web

import (
	"math"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// object is a JSON object of an OpenAPI document.
type object = map[string]any

// ref refers to a schema of the document.
func ref(name string) object { return object{"$ref": "#/components/schemas/" + name} }

// schemas are the schemas of a document by name. Schemas of messages have the full name of the message.
type schemas map[string]any

// message returns a reference to the schema of a message in protojson, after adding the schemas of the message and of its fields.
func (s schemas) message(m protoreflect.MessageDescriptor) object {
	if known := wellKnown[m.FullName()]; known != nil {
		return known
	}
	name := string(m.FullName())
	if _, there := s[name]; there {
		return ref(name)
	}
	schema := withDescription(m, object{"type": "object", "additionalProperties": false})
	s[name] = schema // before its fields, which may be of the same message
	properties := object{}
	var required []string
	fields := m.Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		properties[f.JSONName()] = orNull(s.field(f))
		if f.Cardinality() == protoreflect.Required {
			required = append(required, f.JSONName())
		}
	}
	if len(properties) > 0 {
		schema["properties"] = properties
	}
	if len(required) > 0 {
		schema["required"] = required
	}
	if m.ExtensionRanges().Len() > 0 {
		schema["patternProperties"] = object{`^\[.+\]$`: object{}}
	}
	if exclusive := oneofs(m); len(exclusive) > 0 {
		schema["allOf"] = exclusive
	}
	return ref(name)
}

// oneofs returns a schema for each oneof of a message, which excludes two of its fields at once.
func oneofs(m protoreflect.MessageDescriptor) (exclusive []object) {
	for i := range m.Oneofs().Len() {
		o := m.Oneofs().Get(i)
		if o.IsSynthetic() || o.Fields().Len() < 2 {
			continue
		}
		var one []object
		for i := range o.Fields().Len() {
			name := o.Fields().Get(i).JSONName()
			one = append(one, object{"required": []string{name}, "properties": object{name: object{"not": object{"type": "null"}}}})
		}
		none := object{"not": object{"anyOf": one}}
		exclusive = append(exclusive, object{"oneOf": append([]object{none}, one...)})
	}
	return exclusive
}

// orNull returns the schema of a field, which protojson also reads as null: then it is not set.
func orNull(schema object) object {
	return object{"anyOf": []object{schema, {"type": "null"}}}
}

// field returns the schema of a field.
func (s schemas) field(f protoreflect.FieldDescriptor) object {
	var schema object
	switch {
	case f.IsMap():
		schema = object{"type": "object", "additionalProperties": s.value(f.MapValue())}
		if keys := keySchema(f.MapKey().Kind()); keys != nil {
			schema["propertyNames"] = keys
		}
	case f.IsList():
		schema = object{"type": "array", "items": s.value(f)}
	default:
		schema = s.value(f)
	}
	if options, ok := f.Options().(*descriptorpb.FieldOptions); ok && options.GetDeprecated() {
		schema = object{"allOf": []object{schema}, "deprecated": true}
	}
	return withDescription(f, schema)
}

const (
	signedPattern   = `^-?(0|[1-9][0-9]{0,18})$`
	unsignedPattern = `^(0|[1-9][0-9]{0,19})$`
)

// The schemas of numbers with 32 bits.
var (
	int32Schema  = object{"type": "integer", "format": "int32", "minimum": math.MinInt32, "maximum": math.MaxInt32}
	uint32Schema = object{"type": "integer", "format": "uint32", "minimum": 0, "maximum": math.MaxUint32}
)

// base64Schema is the schema of bytes, in either alphabet, with padding or without.
var base64Schema = object{"type": "string", "contentEncoding": "base64", "pattern": `^(([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}(==)?|[A-Za-z0-9+/]{3}=?)?|` +
	`([A-Za-z0-9_-]{4})*([A-Za-z0-9_-]{2}(==)?|[A-Za-z0-9_-]{3}=?)?)$`}

// value returns the schema of a single value of a field.
func (s schemas) value(f protoreflect.FieldDescriptor) object {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return object{"type": "boolean"}
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return int32Schema
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return uint32Schema
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return object{"type": "string", "format": "int64", "pattern": signedPattern}
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return object{"type": "string", "format": "uint64", "pattern": unsignedPattern}
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return floating
	case protoreflect.StringKind:
		return object{"type": "string"}
	case protoreflect.BytesKind:
		return base64Schema
	case protoreflect.EnumKind:
		return s.enum(f.Enum())
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return s.message(f.Message())
	}
	return object{}
}

// floating is the schema of a float. JSON has no literal for some floats.
var floating = object{"anyOf": []object{{"type": "number"}, {"type": "string", "enum": []string{"NaN", "Infinity", "-Infinity"}}}}

// enum returns a reference to the schema of an enumeration. A value without a name is a number.
func (s schemas) enum(e protoreflect.EnumDescriptor) object {
	if e.FullName() == "google.protobuf.NullValue" {
		return object{"type": "null"}
	}
	var names []string
	for i := range e.Values().Len() {
		names = append(names, string(e.Values().Get(i).Name()))
	}
	s[string(e.FullName())] = withDescription(e, object{"anyOf": []object{{"type": "string", "enum": names}, int32Schema}})
	return ref(string(e.FullName()))
}

// keySchema returns the schema of the keys of a map as property names, or nil for strings.
func keySchema(kind protoreflect.Kind) object {
	switch kind {
	case protoreflect.StringKind:
		return nil
	case protoreflect.BoolKind:
		return object{"enum": []string{"true", "false"}}
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
		return object{"pattern": unsignedPattern}
	default:
		return object{"pattern": signedPattern}
	}
}

// withDescription returns a schema with the comment of a descriptor, if it has one.
func withDescription(d protoreflect.Descriptor, schema object) object {
	comment := strings.TrimSpace(d.ParentFile().SourceLocations().ByDescriptor(d).LeadingComments)
	if comment == "" {
		return schema
	}
	copied := object{"description": comment}
	for k, v := range schema {
		copied[k] = v
	}
	return copied
}

// wellKnown are the messages with a special form in protojson.
var wellKnown = map[protoreflect.FullName]object{
	"google.protobuf.Any": {
		"type": "object", "description": `A message of the type in "@type".`,
		"properties": object{"@type": object{"type": "string", "minLength": 1}}, "additionalProperties": true,
		"anyOf": []object{{"required": []string{"@type"}}, {"maxProperties": 0}},
	},
	"google.protobuf.Timestamp":   {"type": "string", "format": "date-time"},
	"google.protobuf.Duration":    {"type": "string", "pattern": `^-?[0-9]+(\.[0-9]{1,9})?s$`},
	"google.protobuf.FieldMask":   {"type": "string", "pattern": `^([A-Za-z][A-Za-z0-9]*([.,][A-Za-z][A-Za-z0-9]*)*)?$`},
	"google.protobuf.Empty":       {"type": "object", "additionalProperties": false},
	"google.protobuf.Struct":      {"type": "object"},
	"google.protobuf.Value":       {"description": "Any JSON value."},
	"google.protobuf.ListValue":   {"type": "array"},
	"google.protobuf.BoolValue":   {"type": "boolean"},
	"google.protobuf.StringValue": {"type": "string"},
	"google.protobuf.BytesValue":  base64Schema,
	"google.protobuf.Int32Value":  int32Schema,
	"google.protobuf.UInt32Value": uint32Schema,
	"google.protobuf.Int64Value":  {"type": "string", "format": "int64", "pattern": signedPattern},
	"google.protobuf.UInt64Value": {"type": "string", "format": "uint64", "pattern": unsignedPattern},
	"google.protobuf.FloatValue":  floating,
	"google.protobuf.DoubleValue": floating,
}
