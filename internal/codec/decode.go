package codec

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage/resourcepb"
)

// decodePlain is a faster proto.Unmarshal for nearly all resources: one allocation for the messages, one for their strings, one for
// the payload, which stays in place if data may be adopted. For anything unusual, such as an unknown, repeated or malformed field,
// it returns false, and the caller uses proto.Unmarshal.
func decodePlain(data []byte, adopt bool) (*resourcepb.Resource, bool) {
	parts := &struct {
		res  resourcepb.Resource
		id   idParts
		data anypb.Any
	}{}
	res := &parts.res
	// The payload is last. The few bytes before it become one string, and all strings are substrings of it.
	d := decoder{data: data, adopt: adopt}
	payload := d.payload()
	d.text = string(data[:payload])
	for f := d.all(); f.next(); {
		switch f.number {
		case 1:
			res.Id = d.id(f, &parts.id)
		case 2:
			res.Owner = d.id(f, new(idParts))
		case versionField:
			res.Version = d.string(f)
		case 4:
			res.Generation = d.string(f)
		case 5:
			if res.Metadata == nil {
				res.Metadata = make(map[string]string)
			}
			k, v := d.entry(f)
			res.Metadata[k] = d.string(v)
			f.mayRepeat()
		case 6:
			if res.Status == nil {
				res.Status = make(map[string]*resourcepb.Status)
			}
			k, v := d.entry(f)
			status := new(resourcepb.Status)
			d.invalid = d.invalid || proto.Unmarshal(data[v.from:v.to], status) != nil
			res.Status[k] = status
			f.mayRepeat()
		case 7:
			res.Data = d.any(f, &parts.data, payload)
		default:
			d.invalid = true
		}
	}
	return res, !d.invalid
}

// decoder scans a message whose fields are all length-delimited and have numbers below 16. At anything else it sets invalid, which
// ends every loop.
type decoder struct {
	data    []byte
	text    string // the same bytes, up to the payload
	adopt   bool   // the payload may stay in place
	invalid bool
}

// field is a field of a message and the position of the next one.
type field struct {
	d         *decoder
	fieldBits uint16
	number    byte
	from, to  int // the value
	end       int // of the message
}

func (d *decoder) all() field { return field{d: d, end: len(d.data)} }

// inside scans the message in a field.
func (f field) inside() field { return field{d: f.d, to: f.from, end: f.to} }

// next advances to the next field and reports whether there is one.
func (f *field) next() bool {
	d, at := f.d, f.to
	if at >= f.end || d.invalid {
		return false
	}
	tag := d.data[at]
	size, n := binary.Uvarint(d.data[at+1 : f.end])
	bit := uint16(1) << (tag >> 3 & 15)
	if tag >= 0x80 || tag&7 != 2 || n <= 0 || size > uint64(f.end-at-1-n) || f.fieldBits&bit != 0 {
		d.invalid = true
		return false
	}
	f.fieldBits |= bit
	f.number, f.from = tag>>3, at+1+n
	f.to = f.from + int(size)
	return true
}

// mayRepeat permits the field again: entries of maps are repeated fields.
func (f *field) mayRepeat() { f.fieldBits &^= 1 << f.number }

// payload returns the start of the value of the resource's Any if the value ends the resource, and the end of the resource
// otherwise.
func (d *decoder) payload() int {
	for at := d.all(); at.next(); at.fieldBits = 0 {
		if at.number != 7 || at.to != at.end {
			continue
		}
		for inner := at.inside(); inner.next(); {
			if inner.number == 2 && inner.to == at.end {
				return inner.from
			}
		}
	}
	return len(d.data)
}

func (d *decoder) string(f field) string {
	if d.invalid || f.to > len(d.text) || !utf8.ValidString(d.text[f.from:f.to]) {
		d.invalid = true
		return ""
	}
	return d.text[f.from:f.to]
}

func (d *decoder) id(f field, parts *idParts) *resourcepb.ID {
	id := &parts.id
	for f := f.inside(); f.next(); {
		switch f.number {
		case 1:
			id.Uid = d.string(f)
		case 2:
			id.Name = d.string(f)
		case 3:
			id.Type = &parts.typ
			d.typ(f, id.Type)
		case 4:
			id.Tenancy = &parts.tenancy
			d.tenancy(f, id.Tenancy)
		default:
			d.invalid = true
		}
	}
	return id
}

func (d *decoder) typ(f field, out *resourcepb.Type) {
	for f := f.inside(); f.next(); {
		switch f.number {
		case 1:
			out.Group = d.string(f)
		case 2:
			out.GroupVersion = d.string(f)
		case 3:
			out.Kind = d.string(f)
		default:
			d.invalid = true
		}
	}
}

func (d *decoder) tenancy(f field, out *resourcepb.Tenancy) {
	for f := f.inside(); f.next(); {
		switch f.number {
		case 1:
			out.Partition = d.string(f)
		case 2:
			out.Namespace = d.string(f)
		default:
			d.invalid = true
		}
	}
}

// entry splits an entry of a map. Both the key and the value must be present.
func (d *decoder) entry(f field) (k string, value field) {
	inside := f.inside()
	for inside.next() {
		switch inside.number {
		case 1:
			k = d.string(inside)
		case 2:
			value = inside
		default:
			d.invalid = true
		}
	}
	d.invalid = d.invalid || inside.fieldBits != 1<<1|1<<2
	return k, value
}

// any decodes the Any that contains the payload.
func (d *decoder) any(f field, out *anypb.Any, payload int) *anypb.Any {
	for f := f.inside(); f.next(); {
		switch {
		case f.number == 1:
			out.TypeUrl = d.string(f)
		case f.number == 2 && f.from == payload:
			if out.Value = d.data[f.from:f.to:f.to]; !d.adopt {
				out.Value = bytes.Clone(out.Value)
			}
		default:
			d.invalid = true
		}
	}
	return out
}
