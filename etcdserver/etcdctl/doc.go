// Package etcdctl compares `ashlar serve etcd` with etcd, command by command of etcdctl: its tests run the same commands, of the etcdctl
// that is built from its module, against a real etcd and against ours on SQLite and on Postgres, and compare what they print and their exit
// codes. What differs has a sentence that says why; docs/etcd.md has the table, which a test holds to that of the code.
//
//	make etcdctl
package etcdctl
