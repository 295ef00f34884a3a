// Package compat proves that clients of the resource API that this one is compatible with need no change: its tests run the client of
// github.com/hashicorp/consul/proto-public, as it is published, against package service over TCP. They are a module of their own, so that
// nothing else of this repository requires that client's.
//
//	make compat
//
// They compare both schemas field by field, call every method, take every refusal by its code and text, follow a watch, decode a
// tombstone, and look at reflection and health, on a store in memory and on SQLite, and with the build tag integration on Postgres.
package compat
