package web

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ashlar-dev/storage/resourcepb"
)

// bodyTypes are the content types of bodies. The last one is what curl says of any body that it is given by -d.
var bodyTypes = []string{"", "application/json", "application/x-www-form-urlencoded"}

// body reads the body of a request, which is JSON.
func (h *handler) body(w http.ResponseWriter, r *request) ([]byte, error) {
	if err := checkContent(r.Header); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, refuse(http.StatusRequestEntityTooLarge, "the body has more than %d bytes", tooLarge.Limit)
	case err != nil:
		return nil, refuse(http.StatusBadRequest, "the body ends too early: %v", err)
	case len(strings.TrimSpace(string(text))) == 0:
		return nil, refuse(http.StatusBadRequest, "the body is empty: expected JSON")
	}
	var any json.RawMessage
	var syntax *json.SyntaxError
	if err := json.Unmarshal(text, &any); errors.As(err, &syntax) {
		at := int(syntax.Offset)
		if at < len(text) {
			at-- // the offset is behind the wrong character
		}
		return nil, badBody(text, at, "malformed JSON: %v", err)
	}
	return text, nil
}

// checkContent refuses bodies that are something else than JSON in UTF-8.
func checkContent(header http.Header) error {
	if encoding := header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return refuse(http.StatusUnsupportedMediaType, "the content encoding %.80q is not taken: send the body as it is", encoding)
	}
	declared := header.Get("Content-Type")
	name, parameters, err := mime.ParseMediaType(declared)
	if declared != "" && (err != nil || !slices.Contains(bodyTypes, name)) {
		return refuse(http.StatusUnsupportedMediaType, "the content type %.80q is not taken: expected application/json", declared)
	}
	if charset := parameters["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") {
		return refuse(http.StatusUnsupportedMediaType, "the character set %.80q is not taken: expected utf-8", charset)
	}
	return nil
}

// resource returns the resource that a body says.
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

// blankOutside returns a body with blanks for everything but what stands at a place, so that errors say where they are in the body.
func blankOutside(body []byte, at textRange) []byte {
	return append(blank(body[:at.start]), body[at.start:at.end]...)
}

// blankObject returns a body with an empty object for the object at a place. Nothing else moves.
func blankObject(body []byte, at textRange) []byte {
	rest := slices.Clone(body[:at.start])
	rest = append(rest, '{')
	rest = append(rest, blank(body[at.start+1:at.end-1])...)
	rest = append(rest, '}')
	return append(rest, body[at.end:]...)
}

// blank returns a text with blanks for all characters but those that end lines.
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

// status returns the status that a body says.
func (f codec) status(body []byte) (*resourcepb.Status, error) {
	written := new(resourcepb.Status)
	return written, f.read(body, written)
}

// badBody is the error of a body that is wrong at an offset.
func badBody(body []byte, offset int, format string, args ...any) error {
	before := string(body[:min(offset, len(body))])
	line := strings.Count(before, "\n") + 1
	column := utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]) + 1
	return refuse(http.StatusBadRequest, "body invalid: line %d, column %d: "+format, append([]any{line, column}, args...)...)
}

// errorPosition is what package protojson puts before its errors; the blanks are on purpose not always the same ones.
var errorPosition = regexp.MustCompile(`^proto:[\s\x{a0}]*(?:syntax error[\s\x{a0}]*)?(?:\(line (\d+):(\d+)\):[\s\x{a0}]*)?`)

// cleanMessage returns an error of protojson in this package's words.
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
