package cursor

import (
	"bytes"
	"errors"
	"testing"

	"github.com/ashlar-dev/storage"
)

func TestTokens(t *testing.T) {
	t.Parallel()
	mine, other := StoreID{1}, StoreID{2}
	token := Encode(Watch, mine, []byte("here"))
	if got, err := Decode(Watch, mine, token); err != nil || string(got) != "here" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := Decode(Watch, other, token); !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("a token of another store: %v, expected ErrCompacted", err)
	}
	for name, bad := range map[string]string{
		"nothing":            "",
		"garbage":            "garbage",
		"another kind":       Encode(Page, mine, []byte("here")),
		"inside a snapshot":  Encode(Snapshot, mine, nil),
		"cut":                token[:len(token)-1],
		"longer":             token + "A",
		"in another writing": token + "=",
		"a letter changed":   "A" + token[1:],
	} {
		if _, err := Decode(Watch, mine, bad); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(Encode(Watch, StoreID{}, []byte("here")))
	f.Add("")
	f.Fuzz(func(t *testing.T, token string) {
		payload, err := Decode(Watch, StoreID{}, token)
		switch {
		case err == nil && Encode(Watch, StoreID{}, bytes.Clone(payload)) != token:
			t.Errorf("%q was accepted, although it only resembles a token", token)
		case err != nil && !errors.Is(err, storage.ErrInvalid) && !errors.Is(err, storage.ErrCompacted):
			t.Errorf("%q: %v", token, err)
		}
	})
}
