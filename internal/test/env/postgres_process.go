//go:build integration

package env

import (
	"strconv"
	"testing"
)

// KillProcess ends one process of the server at once, chosen by its pid in pg_stat_activity, as the kernel does when memory
// runs out. Postgres then ends all sessions and recovers from its log, with the data that was on disk; nothing restarts the
// container. A process that has gone by itself meanwhile is nobody's fault: it reports whether it was there.
func (s *PostgresServer) KillProcess(t testing.TB, pid uint32) (there bool) {
	t.Helper()
	s.id(t)
	_, err := s.exec("sh", "-c", "kill -9 "+strconv.FormatUint(uint64(pid), 10))
	return err == nil
}

// Freeze stops all processes of the server but the first one, which goes on taking connections, until Wake is called. Docker's Pause
// stops that as well, but not reliably: it fails while the server makes processes.
func (s *PostgresServer) Freeze(t testing.TB) {
	t.Helper()
	others := s.processes(t)[1:]
	s.Exec(t, "sh", "-c", "kill -STOP -1")
	s.awaitStandstill(t, others)
}

// Wake ends a Freeze.
func (s *PostgresServer) Wake(t testing.TB) {
	t.Helper()
	s.Exec(t, "sh", "-c", "kill -CONT -1")
}
