package serve

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/url"
	"strings"
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

// A server that drains does not end before the requests that it has cut off, which may still write to the audit log. A request that never returns
// does not prevent the end.
func TestDrainWaitsForCutOffRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, returns := range []bool{true, false} {
			backend := inmem.New(nil)
			var log bytes.Buffer
			s := &server{
				config:     &Config{Drain: time.Second, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))},
				handshakes: newHandshakes(insecure.NewCredentials()),
				grpc:       grpc.NewServer(), resources: service.New(backend, registry.NewOpen(registry.Type{}), nil), stopHealth: func() {},
			}
			s.drainCtx, s.beginDrain = context.WithCancel(t.Context())
			s.calls.begin()
			drained := make(chan struct{})
			go func() {
				s.drain()
				close(drained)
			}()
			time.Sleep(s.config.Drain + cutOffTimeout - time.Millisecond)
			select {
			case <-drained:
				t.Error("the server ended before a request")
			default:
			}
			if s.drainCtx.Err() == nil {
				t.Error("slow bodies delay the drain")
			}
			if returns {
				s.calls.end()
			}
			ended := time.AfterFunc(time.Hour, s.calls.end)
			<-drained
			if !ended.Stop() {
				t.Error("the server waited for a request that does not return")
			}
			if named := strings.Contains(log.String(), "calls=1"); named == returns {
				t.Errorf("the request returned: %v, the log is %q", returns, log.String())
			}
			if err := backend.Close(); err != nil {
				t.Error(err)
			}
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
