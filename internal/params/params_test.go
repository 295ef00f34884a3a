package params

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
)

func read(t *testing.T, text string) (*Values, []any) {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	v := Parse(u)
	return v, []any{v.Int("size", 7, 1, 10), v.Duration("timeout", time.Second), v.OnOff("create", true), v.String("name", "none"), v.Choice("mode", "a", "a", "b")}
}

func TestValues(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]any{
		"x://h":             {7, time.Second, true, "none", "a"},
		"x://h?timeout=1ms": {7, time.Millisecond, true, "none", "a"},
		"x://h?size=10&timeout=5m&create=off&name=n%20m&mode=b": {10, 5 * time.Minute, false, "n m", "b"},
	} {
		v, got := read(t, text)
		if err := v.Err(); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: got %v, expected %v", text, got[i], want[i])
			}
		}
	}
}

func TestErrorsNameParameter(t *testing.T) {
	t.Parallel()
	for query, named := range map[string]string{
		"size=0":                  "size",
		"size=11":                 "size",
		"size=x":                  "size",
		"size=1&size=2":           "size",
		"timeout=5":               "timeout",
		"timeout=-5s":             "timeout",
		"timeout=0":               "timeout",
		"timeout=0s":              "timeout",
		"timeout=1ns":             "timeout: expected a time such as 30s or 5m, 1ms or more",
		"timeout=999us":           "timeout",
		"create=maybe":            "create",
		"mode=c":                  "mode",
		"unknown=1":               "unknown",
		"size=%zz":                "malformed",
		"name=a;b":                "malformed",
		"password=hunter2&size=0": "size",
		"size=1#part":             "fragment",
	} {
		v, _ := read(t, "x://user:secret@h?"+query)
		err := v.Err()
		if !errors.Is(err, storage.ErrInvalid) || !strings.Contains(err.Error(), named) {
			t.Errorf("%s: got %v, expected ErrInvalid with %q", query, err, named)
		}
		if err != nil && (strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "hunter2")) {
			t.Errorf("%s: the error contains the password: %v", query, err)
		}
	}
}

func TestRest(t *testing.T) {
	t.Parallel()
	v, _ := read(t, "x://h?size=3&sslmode=disable")
	if rest := v.Rest(); len(rest) != 1 || rest.Get("sslmode") != "disable" {
		t.Errorf("Rest returned %v, expected sslmode alone", rest)
	}
	if err := v.Err(); err != nil {
		t.Error(err)
	}
}
