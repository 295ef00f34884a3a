package serve

import (
	"github.com/ashlar-dev/storage/service/registry"
)

// newRegistry returns the types of the configuration. If rules is set, the token file decides each caller's permissions.
func newRegistry(c *Config, rules bool) (*registry.Registry, error) {
	with := func(t registry.Type) registry.Type {
		if rules {
			return withRules(t)
		}
		return t
	}
	if c.AnyType {
		return registry.NewOpen(with(registry.Type{})), nil
	}
	types, err := readTypes(c.Types)
	if err != nil {
		return nil, err
	}
	for i := range types {
		types[i] = with(types[i])
	}
	return registry.New(types...)
}
