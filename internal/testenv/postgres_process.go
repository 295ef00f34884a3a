//go:build integration

package testenv

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
