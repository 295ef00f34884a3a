//go:build !integration

package main

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if !schedules() {
		os.Exit(m.Run())
	}
}
