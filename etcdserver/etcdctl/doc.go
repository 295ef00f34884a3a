// Package etcdctl compares `ashlar serve etcd` with etcd, one etcdctl command after the other. Its tests build etcdctl from its module and
// run the same commands against a real etcd and against this server on SQLite and Postgres. They compare the output and the exit codes.
// Each difference has a documented reason: a test compares the table in docs/etcd.md with the code.
//
//	make etcdctl
package etcdctl
