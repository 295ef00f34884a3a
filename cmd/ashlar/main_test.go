//go:build !integration

package main

import (
	"testing"

	"github.com/ashlar-dev/storage/internal/leaks"
)

func TestMain(m *testing.M) {
	actAsCommand()
	leaks.Main(m)
}
