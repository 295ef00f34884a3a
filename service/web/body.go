package web

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"
)

// bodyTypes are the accepted content types of bodies. The last one is curl's default for -d.
var bodyTypes = []string{"", "application/json", "application/x-www-form-urlencoded"}

// conditions are the headers that make a request conditional. The handler has no entity tags: version is a parameter.
var conditions = []string{"If-Match", "If-None-Match", "If-Unmodified-Since"}

// checkConditions rejects a change with a conditional header, which would not prevent it.
func checkConditions(r *http.Request) error {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	for _, name := range conditions {
		if r.Header.Get(name) != "" {
			return refuse(http.StatusBadRequest, "the header %s is not supported: the query parameter version makes a change conditional", name)
		}
	}
	return nil
}

// hasBody reports whether a request has a body, which may still arrive.
func hasBody(r *http.Request) bool { return r.Body != nil && r.ContentLength != 0 }

// body reads the JSON body of a request, until the deadline that ServeHTTP has set.
func (h *handler) body(w http.ResponseWriter, r *request) ([]byte, error) {
	if err := checkContent(r.Header); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, refuse(http.StatusRequestEntityTooLarge, "the body has more than %d bytes", tooLarge.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, refuse(http.StatusRequestTimeout, "the body did not arrive within %v", h.bodyTimeout)
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
			at-- // the offset is after the wrong character
		}
		return nil, badBody(text, at, "malformed JSON: %v", err)
	}
	return text, nil
}

// checkContent rejects bodies other than JSON in UTF-8.
func checkContent(header http.Header) error {
	if encoding := header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return refuse(http.StatusUnsupportedMediaType, "the content encoding %.80q is not accepted: send the body unencoded", encoding)
	}
	declared := header.Get("Content-Type")
	name, parameters, err := mime.ParseMediaType(declared)
	if declared != "" && (err != nil || !slices.Contains(bodyTypes, name)) {
		return refuse(http.StatusUnsupportedMediaType, "the content type %.80q is not accepted: expected application/json", declared)
	}
	if charset := parameters["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") {
		return refuse(http.StatusUnsupportedMediaType, "the character set %.80q is not accepted: expected utf-8", charset)
	}
	return nil
}
