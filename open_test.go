package storage_test

import (
	"context"
	"errors"
	"io"
	"net/url"
	"strings"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
)

func TestOpenRefusesWhatItCannotOpen(t *testing.T) {
	t.Parallel()
	var mux storage.Mux
	mux.Register("mem", func(context.Context, *url.URL) (storage.Backend, error) { return inmem.New(nil), nil })
	for rawURL, says := range map[string]string{
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
		if !errors.Is(err, storage.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %v, expected a word about %s", rawURL, err, says)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: the password shows in %v", rawURL, err)
		}
	}
	for _, good := range []string{"mem://", "MEM://name"} {
		b, err := mux.Open(context.Background(), good)
		if err != nil {
			t.Errorf("%q: %v", good, err)
			continue
		}
		b.Close()
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := mux.Open(over, "mem://"); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that is over: %v", err)
	}
}

func TestRegisterPanicsOnMistakes(t *testing.T) {
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

// layer passes on one capability of the backend that it wraps, and refuses the rest.
type layer struct{ storage.Backend }

func (l layer) As(target any) bool {
	if p, ok := target.(*storage.Pager); ok {
		*p, ok = storage.As[storage.Pager](l.Backend)
		return ok
	}
	return false
}

func TestAsAsksTheLayer(t *testing.T) {
	t.Parallel()
	b := inmem.New(nil)
	defer b.Close()
	if _, ok := storage.As[storage.Resumer](b); !ok {
		t.Error("the backend's own capability was not found")
	}
	if _, ok := storage.As[storage.Pager](layer{b}); !ok {
		t.Error("the layer passes this one on")
	}
	if _, ok := storage.As[storage.Resumer](layer{b}); ok {
		t.Error("the layer refuses this one")
	}
	if _, ok := storage.As[storage.Pager](struct{ storage.Backend }{b}); ok {
		t.Error("As must not look inside a layer by itself")
	}
}

// counted has a Commit of its own, and the rest from the backend that it embeds.
type counted struct {
	*inmem.Backend
	commits *int
}

func (c counted) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	*c.commits++
	return c.Backend.Commit(ctx, ops)
}

func TestAsFindsWhatALayerOverrides(t *testing.T) {
	t.Parallel()
	b := inmem.New(nil)
	defer b.Close()
	commits := 0
	transactor, ok := storage.As[storage.Transactor](counted{b, &commits})
	if !ok {
		t.Fatal("the layer has no Commit")
	}
	if _, err := transactor.Commit(t.Context(), nil); err != nil || commits != 1 {
		t.Errorf("%v after %d commits of the layer, expected one", err, commits)
	}
	if _, ok := storage.As[interface {
		Snapshot(ctx context.Context, w io.Writer) error
	}](b); !ok {
		t.Error("a method of the adapter's own was not found")
	}
}
