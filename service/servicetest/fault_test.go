package servicetest

import (
	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// fault is what is wrong with a server that the suite has to find out about. Nil functions break nothing.
type fault struct {
	backend func(storage.Backend) storage.Backend // what the server sees of the store
	reaped  func(storage.Backend) storage.Backend // what the reaper sees of it
	types   func([]registry.Type) []registry.Type
	options func(*service.Options)
	client  func(Client, storage.Backend) Client
}

// through returns v as f makes it, if there is one.
func through[T any](v T, f func(T) T) T {
	if f == nil {
		return v
	}
	return f(v)
}
