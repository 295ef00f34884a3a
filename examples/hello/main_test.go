package main

import (
	"io"
	"os"
	"strings"
	"testing"
)

// README.md shows the output of the program. The test changes the folder and standard output of the process, so it is not parallel.
func TestOutput(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	os.Stdout = w
	err = run(t.Context())
	os.Stdout = stdout
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	output, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "```\n"+string(output)+"```\n") {
		t.Errorf("README.md does not show the output of examples/hello, which is\n%s", output)
	}
}
