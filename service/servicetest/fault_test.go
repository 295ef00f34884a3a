package servicetest

import (
	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// fault is the bug of a server that the suite must find. Nil functions change nothing.
type fault struct {
	backend func(storage.Backend) storage.Backend // wraps the server's backend
	reaped  func(storage.Backend) storage.Backend // wraps the reaper's backend
	types   func([]registry.Type) []registry.Type
	options func(*service.Options)
	client  func(Client, storage.Backend) Client
}

// through returns f(v), or v if f is nil.
func through[T any](v T, f func(T) T) T {
	if f == nil {
		return v
	}
	return f(v)
}
