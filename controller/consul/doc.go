// Package consul has the names that controllers of Consul use from its packages internal/resource, internal/controller/cache/index and
// internal/controller/cache/indexers. A ported controller imports this package under these names, and its other lines stay:
//
//	index "github.com/ashlar-dev/storage/controller/consul"
//	indexers "github.com/ashlar-dev/storage/controller/consul"
//	resource "github.com/ashlar-dev/storage/controller/consul"
//
// docs/controllers.md shows a port line by line. New controllers use package controller alone.
package consul
