package serve

import (
	"context"
	"io"
	"net/url"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
)

// opened is the context key of a function that is called when the store is open.
type opened struct{}

func init() {
	storage.Register("stopping", func(ctx context.Context, _ *url.URL) (storage.Backend, error) {
		ctx.Value(opened{}).(context.CancelFunc)()
		return inmem.New(nil), nil
	})
}

// A signal between opening the store and serving ends the server without an error.
func TestStopBeforeServing(t *testing.T) {
	t.Parallel()
	logger, err := NewLogger(io.Discard, "text", "error")
	if err != nil {
		t.Fatal(err)
	}
	config := Config{
		Store: "stopping://", Listen: "127.0.0.1:0", AnyType: true, Drain: time.Second, ReadyTimeout: time.Second, Logger: logger,
	}
	for name, run := range map[string]func(context.Context, Config) error{"resources": Run, "etcd": RunEtcd} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 200 {
				ctx, stop := context.WithCancel(t.Context())
				if err := run(context.WithValue(ctx, opened{}, stop), config); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
