//go:build integration

package env

import "testing"

// EtcdWithBackup is an etcd server of one member whose data can be restored into another server, by the tools that operators use.
type EtcdWithBackup struct {
	*EtcdServer

	volume string
}

// The mount point of the backup's volume, and its contents.
const (
	backupDir      = "/backup"
	backupSnapshot = backupDir + "/snapshot.db"
	backupData     = backupDir + "/data"
)

// StartEtcdWithBackup starts an etcd server of one member for one test.
func StartEtcdWithBackup(t testing.TB) *EtcdWithBackup {
	t.Helper()
	b := &EtcdWithBackup{volume: volume(t)}
	b.EtcdServer = b.start(t)
	return b
}

func (b *EtcdWithBackup) start(t testing.TB, flags ...string) *EtcdServer {
	t.Helper()
	s := etcdSpec(flags...)
	s.volumes = []string{b.volume + ":" + backupDir}
	c := start(t, s)
	return &EtcdServer{Container: c, Endpoint: c.Addr}
}

// Save makes the backup.
func (b *EtcdWithBackup) Save(t testing.TB) {
	t.Helper()
	b.Exec(t, "/usr/local/bin/etcdctl", "snapshot", "save", backupSnapshot)
}

// Restore starts another server with the data of the backup. flags are passed to etcdutl snapshot restore.
func (b *EtcdWithBackup) Restore(t testing.TB, flags ...string) *EtcdServer {
	t.Helper()
	b.Exec(t, append([]string{"/usr/local/bin/etcdutl", "snapshot", "restore", backupSnapshot, "--data-dir=" + backupData}, flags...)...)
	return b.start(t, "--data-dir="+backupData)
}
