package web

import (
	"bytes"
	"encoding/json"
)

const (
	jsonType  = "application/json"
	linesType = "application/x-ndjson"
	indent    = "  "
)

// quote returns a text as a JSON string.
func quote(s string) []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic("encoding a string cannot fail: " + err.Error())
	}
	return text
}

// writeIndented writes compact JSON with indentation, unless the result is too large.
func writeIndented(out *bytes.Buffer, text []byte, prefix string) error {
	if indentedSize(text, len(prefix)) > maxIndentFactor*len(text) {
		out.Write(text)
		return nil
	}
	return json.Indent(out, text, prefix, indent)
}

// indentedSize returns the size of compact JSON with indentation. It ignores empty objects and lists.
func indentedSize(text []byte, prefix int) int {
	size, line := len(text), 1+prefix // the line end and the indentation
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

// maxIndentFactor is the maximum growth of a text by indentation, which can be quadratic for deeply nested payloads.
const maxIndentFactor = 8
