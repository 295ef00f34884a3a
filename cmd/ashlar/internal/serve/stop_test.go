package serve

import (
	"context"
	"io"
	"log/slog"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// opened is the context key of a function that is called when the store is open.
type opened struct{}

func init() {
	storage.Register("stopping", func(ctx context.Context, _ *url.URL) (storage.Backend, error) {
		ctx.Value(opened{}).(context.CancelFunc)()
		return inmem.New(nil), nil
	})
}

// A server that drains does not end before the requests that it has cut off: they may still write to the audit log.
func TestDrainWaitsForCutOffRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		backend := inmem.New(nil)
		s := &server{
			config: &Config{Drain: time.Second, Logger: slog.New(slog.DiscardHandler)}, handshakes: newHandshakes(insecure.NewCredentials()),
			grpc: grpc.NewServer(), resources: service.New(backend, registry.NewOpen(registry.Type{}), nil), stopHealth: func() {},
		}
		s.calls.begin()
		drained := make(chan struct{})
		go func() {
			s.drain()
			close(drained)
		}()
		time.Sleep(time.Hour)
		select {
		case <-drained:
			t.Error("the server ended before a request")
		default:
		}
		s.calls.end()
		<-drained
		if err := backend.Close(); err != nil {
			t.Error(err)
		}
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
