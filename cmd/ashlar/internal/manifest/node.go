package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// maxDepth bounds the nesting of a document. A Struct needs three levels of messages for each level, and decoding stops at 10,000.
const maxDepth = 1000

// maxNodes bounds the expansion of a small document by aliases.
const maxNodes = 2_000_000

type kind int

const (
	null kind = iota
	boolean
	number
	text
	list
	object
)

func (k kind) String() string {
	return [...]string{"nothing", "a boolean", "a number", "text", "a list", "an object"}[k]
}

// node is a value in a document, in the same form for YAML and JSON, with its line.
type node struct {
	kind   kind
	line   int
	text   string // the text; the JSON literal of a number; true or false for a boolean
	items  []*node
	fields []field
}

type field struct {
	name  string
	line  int
	value *node
}

// get returns the field of this name, or nil. A field without a value counts as missing.
func (n *node) get(name string) *node {
	for _, f := range n.fields {
		if f.name == name && f.value.kind != null {
			return f.value
		}
	}
	return nil
}

// lineError is an error at a line of a document.
type lineError struct {
	line int
	err  error
}

func (e *lineError) Error() string { return e.err.Error() }
func (e *lineError) Unwrap() error { return e.err }

func errAt(line int, format string, args ...any) error {
	return &lineError{line: line, err: fmt.Errorf(format, args...)}
}

// json appends n as JSON.
func (n *node) json(out *bytes.Buffer) {
	switch n.kind {
	case null:
		out.WriteString("null")
	case boolean, number:
		out.WriteString(n.text)
	case text:
		out.Write(quote(n.text))
	case list:
		out.WriteByte('[')
		for i, item := range n.items {
			if i > 0 {
				out.WriteByte(',')
			}
			item.json(out)
		}
		out.WriteByte(']')
	case object:
		out.WriteByte('{')
		for i, f := range n.fields {
			if i > 0 {
				out.WriteByte(',')
			}
			out.Write(quote(f.name))
			out.WriteByte(':')
			f.value.json(out)
		}
		out.WriteByte('}')
	}
}

func quote(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic("encoding a string cannot fail: " + err.Error())
	}
	return b
}

// isWhole reports whether a JSON literal is written as a whole number.
func isWhole(literal string) bool { return !strings.ContainsAny(literal, ".eE") }
