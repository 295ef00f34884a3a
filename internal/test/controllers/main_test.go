//go:build !(integration && soak)

package controllers

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	serveProcess()
	os.Exit(m.Run())
}
