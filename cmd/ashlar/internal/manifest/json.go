package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"sort"
)

// jsonReader reads consecutive JSON values, as list and watch print them.
type jsonReader struct {
	dec      *json.Decoder
	newlines []int
	size     int
}

func newJSONReader(data []byte) *jsonReader {
	r := &jsonReader{dec: json.NewDecoder(bytes.NewReader(data)), size: len(data)}
	r.dec.UseNumber()
	for i, c := range data {
		if c == '\n' {
			r.newlines = append(r.newlines, i)
		}
	}
	return r
}

// next returns the next value, or io.EOF.
func (r *jsonReader) next() (*node, error) {
	token, err := r.dec.Token()
	if errors.Is(err, io.EOF) {
		return nil, io.EOF
	}
	if err != nil {
		return nil, r.syntaxError(err)
	}
	return r.value(token, 0)
}

// line returns the line of the last token.
func (r *jsonReader) line() int { return r.lineOf(int(r.dec.InputOffset()) - 1) }

func (r *jsonReader) lineOf(offset int) int { return 1 + sort.SearchInts(r.newlines, offset) }

func (r *jsonReader) syntaxError(err error) error {
	line := r.line()
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errAt(r.lineOf(r.size-1), "malformed JSON: it ends inside a value")
	case errors.As(err, &syntax):
		line = max(line, r.lineOf(int(syntax.Offset)-1))
	}
	return errAt(line, "malformed JSON: %w", err)
}

func (r *jsonReader) value(token json.Token, depth int) (*node, error) {
	line := r.line()
	if depth > maxDepth {
		return nil, errAt(line, "nested more than %d levels deep", maxDepth)
	}
	switch t := token.(type) {
	case string:
		return &node{kind: text, line: line, text: t}, nil
	case json.Number:
		return &node{kind: number, line: line, text: t.String()}, nil
	case bool:
		n := &node{kind: boolean, line: line, text: "false"}
		if t {
			n.text = "true"
		}
		return n, nil
	case json.Delim:
		if t == '[' {
			return r.list(line, depth)
		}
		return r.object(line, depth)
	}
	return &node{kind: null, line: line}, nil
}

func (r *jsonReader) list(line, depth int) (*node, error) {
	n := &node{kind: list, line: line}
	for r.dec.More() {
		token, err := r.dec.Token()
		if err != nil {
			return nil, r.syntaxError(err)
		}
		item, err := r.value(token, depth+1)
		if err != nil {
			return nil, err
		}
		n.items = append(n.items, item)
	}
	return n, r.end()
}

func (r *jsonReader) object(line, depth int) (*node, error) {
	n := &node{kind: object, line: line}
	seen := map[string]bool{}
	for r.dec.More() {
		token, err := r.dec.Token()
		if err != nil {
			return nil, r.syntaxError(err)
		}
		name, ok := token.(string)
		if !ok {
			return nil, errAt(r.line(), "malformed JSON: a field name is not text")
		}
		if seen[name] {
			return nil, errAt(r.line(), "duplicate field %q", name)
		}
		seen[name] = true
		at := r.line()
		if token, err = r.dec.Token(); err != nil {
			return nil, r.syntaxError(err)
		}
		value, err := r.value(token, depth+1)
		if err != nil {
			return nil, err
		}
		n.fields = append(n.fields, field{name: name, line: at, value: value})
	}
	return n, r.end()
}

func (r *jsonReader) end() error {
	if _, err := r.dec.Token(); err != nil {
		return r.syntaxError(err)
	}
	return nil
}
