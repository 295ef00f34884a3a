package storage_test

import (
	"context"
	"errors"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
)

func TestOpenErrors(t *testing.T) {
	t.Parallel()
	var mux storage.Mux
	mux.Register("mem", func(context.Context, *url.URL) (storage.Backend, error) { return inmem.New(nil), nil })
	for rawURL, want := range map[string]string{
		"":                            "mem:",
		"store.db":                    "mem:",
		"/var/lib/store.db":           "mem:",
		"nothing://host":              `unknown scheme "nothing"`,
		"mem://name#fragment":         "fragment",
		"mem://name#":                 "fragment",
		"mem://u:hunter2@h:port/path": "malformed",
		"mem://u:hunter2%zz@h/path":   "malformed",
	} {
		_, err := mux.Open(context.Background(), rawURL)
		if !errors.Is(err, storage.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, expected ErrInvalid with %q", rawURL, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: the error contains the password: %v", rawURL, err)
		}
	}
	if _, err := new(storage.Mux).Open(t.Context(), "mem://"); !errors.Is(err, storage.ErrInvalid) || !strings.Contains(err.Error(), "imports no adapter") {
		t.Errorf("without adapters: got %v, expected ErrInvalid with the reason", err)
	}
	for _, rawURL := range []string{"mem://", "MEM://name"} {
		b, err := mux.Open(context.Background(), rawURL)
		if err != nil {
			t.Errorf("%q: %v", rawURL, err)
			continue
		}
		b.Close()
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := mux.Open(ended, "mem://"); !errors.Is(err, context.Canceled) {
		t.Errorf("an ended context: %v, expected Canceled", err)
	}
}

func TestRegisterPanics(t *testing.T) {
	t.Parallel()
	open := func(context.Context, *url.URL) (storage.Backend, error) { return nil, nil }
	for name, register := range map[string]func(*storage.Mux){
		"no scheme": func(m *storage.Mux) { m.Register("", open) },
		"no opener": func(m *storage.Mux) { m.Register("x", nil) },
		"twice":     func(m *storage.Mux) { m.Register("x", open); m.Register("x", open) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: expected a panic", name)
				}
			}()
			register(new(storage.Mux))
		}()
	}
}

// layer passes on the Pager of the backend that it wraps, and refuses all other capabilities.
type layer struct{ storage.Backend }

func (l layer) As(target any) bool {
	if p, ok := target.(*storage.Pager); ok {
		*p, ok = storage.As[storage.Pager](l.Backend)
		return ok
	}
	return false
}

func TestALayerCanRefuseCapabilities(t *testing.T) {
	t.Parallel()
	b := inmem.New(nil)
	defer b.Close()
	has := func(backend storage.Backend) map[string]bool {
		found := map[string]bool{}
		_, found["Pager"] = storage.As[storage.Pager](backend)
		_, found["Resumer"] = storage.As[storage.Resumer](backend)
		_, found["Transactor"] = storage.As[storage.Transactor](backend)
		_, found["Historian"] = storage.As[history.Historian](backend)
		_, found["Mover"] = storage.As[driver.Mover](backend)
		return found
	}
	for _, c := range []struct {
		name    string
		backend storage.Backend
		want    []string
	}{
		{"a backend", b, []string{"Pager", "Resumer", "Transactor", "Historian", "Mover"}},
		{"a layer", layer{b}, []string{"Pager"}},
		{"a layer over a layer", layer{layer{b}}, []string{"Pager"}},
		{"a wrapper without a method As", struct{ storage.Backend }{b}, nil},
		{"a layer over that wrapper", layer{struct{ storage.Backend }{b}}, nil},
	} {
		for capability, found := range has(c.backend) {
			if found != slices.Contains(c.want, capability) {
				t.Errorf("%s: As found a %s: %v, expected %v", c.name, capability, found, !found)
			}
		}
	}
}

// counted replaces the Commit of the backend that it embeds.
type counted struct {
	*inmem.Backend
	commits *int
}

func (c counted) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	*c.commits++
	return c.Backend.Commit(ctx, ops)
}

func TestAsFindsReplacedMethods(t *testing.T) {
	t.Parallel()
	b := inmem.New(nil)
	defer b.Close()
	commits := 0
	transactor, ok := storage.As[storage.Transactor](counted{b, &commits})
	if !ok {
		t.Fatal("As found no Transactor")
	}
	if _, err := transactor.Commit(t.Context(), nil); err != nil || commits != 1 {
		t.Errorf("the replaced Commit returned %v and was called %d times, expected nil and once", err, commits)
	}
	if _, ok := storage.As[interface {
		Snapshot(ctx context.Context, w io.Writer) error
	}](b); !ok {
		t.Error("As did not find a method that only this adapter has")
	}
}
