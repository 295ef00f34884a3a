//go:build schemathesis

package web_test

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage/service/registry"
)

// Schemathesis finds no difference between the API and its document: make schemathesis.
func TestSchemathesis(t *testing.T) {
	program := os.Getenv("SCHEMATHESIS")
	require.NotEmpty(t, program, "the variable SCHEMATHESIS must name the program: use make schemathesis")
	for name, types := range map[string]*registry.Registry{"open": registry.NewOpen(registry.Type{}), "registered": catalog(t)} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, types, backends["sqlite"], transports["in the process"], nil, endWatches)
			cmd := exec.CommandContext(t.Context(), program, "run", s.url+"/openapi.json")
			cmd.Dir = "../../tools/schemathesis" // with schemathesis.toml
			cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
			require.NoError(t, cmd.Run())
		})
	}
}

// endWatches makes a server end its watches after a second, as a proxy may do.
func endWatches(server *http.Server) {
	next := server.Handler
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("watch") {
			ctx, cancel := context.WithTimeout(r.Context(), time.Second)
			defer cancel()
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, r)
	})
}
