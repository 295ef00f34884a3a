package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// blankOutside returns a body with blanks outside of a range, so that errors have the position in the body.
func blankOutside(body []byte, at textRange) []byte {
	return append(blank(body[:at.start]), body[at.start:at.end]...)
}

// blankObject returns a body with an empty object in place of the object in a range. All other positions stay the same.
func blankObject(body []byte, at textRange) []byte {
	rest := slices.Clone(body[:at.start])
	rest = append(rest, '{')
	rest = append(rest, blank(body[at.start+1:at.end-1])...)
	rest = append(rest, '}')
	return append(rest, body[at.end:]...)
}

// blank returns a text with all characters except line ends replaced by blanks.
func blank(text []byte) []byte {
	blanks := make([]byte, 0, len(text))
	for len(text) > 0 {
		_, n := utf8.DecodeRune(text)
		c := byte(' ')
		if text[0] == '\n' {
			c = '\n'
		}
		blanks, text = append(blanks, c), text[n:]
	}
	return blanks
}

// badBody is the error of a body that is invalid at an offset.
func badBody(body []byte, offset int, format string, args ...any) error {
	before := string(body[:min(offset, len(body))])
	line := strings.Count(before, "\n") + 1
	column := utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]) + 1
	return refuse(http.StatusBadRequest, "body invalid: line %d, column %d: "+format, append([]any{line, column}, args...)...)
}

// errorPosition matches the prefix of protojson's errors, whose whitespace varies on purpose.
var errorPosition = regexp.MustCompile(`^proto:[\s\x{a0}]*(?:syntax error[\s\x{a0}]*)?(?:\(line (\d+):(\d+)\):[\s\x{a0}]*)?`)

// cleanMessage returns the text of a protojson error in the format of this package.
func cleanMessage(err error) string {
	text := err.Error()
	found := errorPosition.FindStringSubmatch(text)
	if found == nil {
		return text
	}
	text = text[len(found[0]):]
	if found[1] == "" {
		return text
	}
	return "line " + found[1] + ", column " + found[2] + ": " + text
}

// textRange is a part of a text.
type textRange struct{ start, end int }

// member is a member of a JSON object.
type member struct {
	name  string
	key   int // the offset of its name
	value textRange
}

// membersOf returns the members of a JSON object in order.
func membersOf(text []byte) ([]member, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, fmt.Errorf("%.20q is not an object", text)
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
