package web

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/ashlar-dev/storage/internal/jsonpb"
	"github.com/ashlar-dev/storage/resourcepb"
)

const (
	jsonType  = "application/json"
	linesType = "application/x-ndjson"
	indent    = "  "
)

// encodeResource returns a resource as compact JSON.
func (f codec) encodeResource(res *resourcepb.Resource) ([]byte, error) {
	return jsonpb.MarshalWith(res, f.encode)
}

// answer answers with one resource.
func answer(w http.ResponseWriter, f codec, res *resourcepb.Resource) error {
	text, err := f.encodeResource(res)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := writeIndented(&out, text, ""); err != nil {
		return fmt.Errorf("render a resource: %w", err)
	}
	out.WriteByte('\n')
	w.Header().Set("Content-Type", jsonType)
	_, _ = w.Write(out.Bytes()) // whoever asked may be gone
	return nil
}

// answerList answers with resources, each in the form that formOf returns for it, and with what a listing has beside them as far as it is not
// empty. No more than one resource is in memory as text.
func answerList(w http.ResponseWriter, formOf func(*resourcepb.Resource) codec, resources []*resourcepb.Resource, beside ...[2]string) error {
	w.Header().Set("Content-Type", jsonType)
	out := bufio.NewWriter(w) // it keeps its first error for Flush
	var piece bytes.Buffer
	piece.WriteString("{\n" + indent + `"resources": [`)
	for i, res := range resources {
		text, err := formOf(res).encodeResource(res)
		if err != nil {
			panic(http.ErrAbortHandler) // the answer has begun: its reader has to see that it is not whole
		}
		if i > 0 {
			piece.WriteByte(',')
		}
		piece.WriteString("\n" + indent + indent)
		if err := writeIndented(&piece, text, indent+indent); err != nil {
			panic(http.ErrAbortHandler)
		}
		_, _ = piece.WriteTo(out)
	}
	if len(resources) > 0 {
		piece.WriteString("\n" + indent)
	}
	piece.WriteByte(']')
	for _, b := range beside {
		if b[1] != "" {
			fmt.Fprintf(&piece, ",\n%s%s: %s", indent, quote(b[0]), quote(b[1]))
		}
	}
	piece.WriteString("\n}\n")
	_, _ = piece.WriteTo(out)
	_ = out.Flush() // whoever asked may be gone
	return nil
}

// maxIndentFactor is how many times larger than without it a text may become by indentation. That of deeply nested payloads grows with the square
// of their size.
const maxIndentFactor = 8

// writeIndented writes compact JSON with indentation, unless that is too large.
func writeIndented(out *bytes.Buffer, text []byte, prefix string) error {
	if indentedSize(text, len(prefix)) > maxIndentFactor*len(text) {
		out.Write(text)
		return nil
	}
	return json.Indent(out, text, prefix, indent)
}

// indentedSize returns the size of compact JSON with indentation, in which it counts empty objects and lists as if they were not.
func indentedSize(text []byte, prefix int) int {
	size, line := len(text), 1+prefix // how much a line has before its text
	inString := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			line += len(indent)
			size += line
		case c == '}' || c == ']':
			line -= len(indent)
			size += line
		case c == ',':
			size += line
		}
	}
	return size
}

// encodeEvent returns an event as compact JSON.
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

// quote returns a text as JSON.
func quote(s string) []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic("encoding a string cannot fail: " + err.Error())
	}
	return text
}
