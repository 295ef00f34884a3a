// Package relays connects the adapter with package relay, which links gRPC and is imported only by programs that use relays.
package relays

import (
	"context"
	"fmt"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/dynamodb/internal/streams"
	"github.com/ashlar-dev/storage/telemetry"
)

// Options are dynamodb.RelayOptions.
type Options struct {
	Listen, Advertise string
	Cert, Key, CA     string
	TokenFile         string
	TTL               time.Duration
}

// Host is the handle that takes part.
type Host struct {
	streams.Config
	Options
	Recorder *telemetry.Recorder
	// OpenDirectory opens the store in which relays publish their addresses. Watches of it are never opened.
	OpenDirectory func(ctx context.Context) (storage.Backend, error)
}

// Node is the part of a handle that connects to relays, and may be one.
type Node interface {
	streams.Relays
	Close()
}

var start func(Host) (Node, error)

// Register sets the function that starts a node.
func Register(f func(Host) (Node, error)) { start = f }

// Start starts a node.
func Start(h Host) (Node, error) {
	if start == nil {
		return nil, fmt.Errorf("%w: watch=relay: the program does not import github.com/ashlar-dev/storage/dynamodb/relay", storage.ErrInvalid)
	}
	return start(h)
}
