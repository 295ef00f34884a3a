//go:build schemathesis

package web_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage/service/registry"
)

// Schemathesis finds no difference between the API and its document: make schemathesis.
func TestSchemathesis(t *testing.T) {
	program := os.Getenv("SCHEMATHESIS")
	require.NotEmpty(t, program, "the variable SCHEMATHESIS must name the program: use make schemathesis")
	for name, types := range map[string]*registry.Registry{"open": registry.NewOpen(registry.Type{})} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, types, backends["sqlite"], transports["in the process"], nil)
			cmd := exec.CommandContext(t.Context(), program, "run", s.url+"/openapi.json")
			cmd.Dir = "../../tools/schemathesis" // with schemathesis.toml
			cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
			require.NoError(t, cmd.Run())
		})
	}
}
