//go:build integration

package main

import (
	"testing"

	"github.com/ashlar-dev/storage/internal/test/env"
)

func TestMain(m *testing.M) {
	if !schedules() {
		env.Main(m)
	}
}

// Two processes schedule. One of them is killed repeatedly, and the database is restarted.
func TestPostgres(t *testing.T) {
	t.Parallel()
	server := env.StartPostgres(t)
	schedule(t, server.StoreURL(t), process, func() { server.Restart(t) })
}
