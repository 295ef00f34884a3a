//go:build integration

package env

import (
	"strconv"
	"testing"
)

// KillProcess kills one process of the server, chosen by its pid in pg_stat_activity, like the kernel when memory runs out.
// Postgres then ends all sessions and recovers from its log, with the data on disk; nothing restarts the container. KillProcess
// reports whether the process existed, because it may have ended meanwhile.
func (s *PostgresServer) KillProcess(t testing.TB, pid uint32) (there bool) {
	t.Helper()
	s.id(t)
	_, err := s.exec("sh", "-c", "kill -9 "+strconv.FormatUint(uint64(pid), 10))
	return err == nil
}

// Freeze stops all processes of the server but the first one, which continues to accept connections, until Wake is called. Docker's
// Pause stops that process as well, but fails while the server creates processes.
func (s *PostgresServer) Freeze(t testing.TB) {
	t.Helper()
	others := s.processes(t)[1:]
	s.Exec(t, "sh", "-c", "kill -STOP -1")
	s.awaitStandstill(t, others)
}

// Wake resumes the frozen processes.
func (s *PostgresServer) Wake(t testing.TB) {
	t.Helper()
	s.Exec(t, "sh", "-c", "kill -CONT -1")
}
