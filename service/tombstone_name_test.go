package service

import (
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"
)

// Each uid has its own tombstone name: the second of two tombstones with one name would not be written.
func TestTombstoneNames(t *testing.T) {
	t.Parallel()
	upper := ulid.Make().String()
	known := map[string]string{}
	for _, uid := range []string{upper, strings.ToLower(upper), upper[:25] + "é", upper + " ", "x", "X", ""} {
		name := tombstoneName(uid)
		if other, ok := known[name]; ok || !isName(name) {
			t.Errorf("the tombstone of %q has the name %q, which is invalid or equal to the name for %q", uid, name, other)
		}
		known[name] = uid
	}
}
