package serve

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/inmem"
)

// A server whose store has moved is not ready, for a reason that its operator understands.
func TestNotReadyAfterMove(t *testing.T) {
	t.Parallel()
	backend := inmem.New(nil)
	defer backend.Close()
	mover, _ := storage.As[driver.GuardedMover](backend)
	state, err := mover.Fence(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mover.SetFenceAt(t.Context(), &driver.Fence{Target: "mem://secret-host", Moved: true}, state.Epoch); err != nil {
		t.Fatal(err)
	}
	s := &server{config: &Config{Logger: slog.New(slog.DiscardHandler)}, metrics: newMetrics(), ready: &readiness{backend: backend, timeout: time.Minute}}
	mux, answer := http.NewServeMux(), httptest.NewRecorder()
	s.addAdmin(mux)
	mux.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
	if want := "not ready: the store has moved\n"; answer.Code != http.StatusServiceUnavailable || answer.Body.String() != want {
		t.Errorf("%d %q, want %q", answer.Code, answer.Body, want)
	}
}
