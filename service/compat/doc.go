// Package compat tests that clients of the compatible resource API need no change. Its tests run the published client of
// github.com/hashicorp/consul/proto-public against package service over TCP. They are a separate module, so that no other part of this repository
// depends on that client.
//
//	make compat
//
// They compare both schemas field by field, call every method, check every rejection by its code and text, follow a watch, decode a
// tombstone, and check reflection and health, on a store in memory and on SQLite, and with the build tag integration on Postgres. Package foo is
// a controller of Consul's documentation with other imports; a test runs it on the resources that the published client writes.
package compat
