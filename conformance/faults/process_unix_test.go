//go:build unix

package faults

import (
	"testing"
	"time"

	"github.com/ashlar-dev/storage/internal/freeze"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Calls to a frozen process are answered after it continues.
func TestFrozenProcess(t *testing.T) {
	t.Parallel()
	b, _ := apart(t)
	if err := b.withProcess(freeze.Stop); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := b.WriteCAS(t.Context(), &resourcepb.Resource{Id: idOf("n", "a", "u")})
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Errorf("answered while the process is frozen: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if err := b.withProcess(freeze.Wake); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
}
