package web_test

import (
	"net/http"
	"strings"
	"testing"
)

// A write with a conditional header, which the handler does not evaluate, is refused: otherwise it would be unconditional.
func TestConditionalHeadersAreRefused(t *testing.T) {
	t.Parallel()
	s := memorySite(t, catalog(t), nil)
	const path = "/demo/v1/album/blue"
	s.put(path, `{"data":{"title":"one"}}`)
	for _, header := range []string{"If-Match", "If-None-Match", "If-Unmodified-Since"} {
		if got := s.put(path, `{"data":{"title":"two"}}`, header, `"another"`); got.code != http.StatusBadRequest {
			t.Errorf("PUT with %s: %d", header, got.code)
		}
		if got := s.delete(path, header, `"another"`); got.code != http.StatusBadRequest {
			t.Errorf("DELETE with %s: %d", header, got.code)
		}
	}
	if got := s.get(path, "If-None-Match", `"another"`); !strings.Contains(got.body, `"one"`) {
		t.Errorf("stored is %s", got.body)
	}
}
