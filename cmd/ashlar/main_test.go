package main

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// asCommand makes the test binary the command itself, so that tests can start it as a process of its own, with the real
// signals and the real exit.
const asCommand = "ASHLAR_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}
