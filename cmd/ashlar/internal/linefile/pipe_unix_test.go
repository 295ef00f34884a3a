//go:build unix

package linefile_test

import (
	"bufio"
	"fmt"
	"os"
	"testing"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/linefile"
)

// A descriptor of a pipe, such as /dev/stdout in a container, has no directory.
func TestPipe(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f, err := linefile.Open(fmt.Sprintf("/dev/fd/%d", w.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Append([]byte("a line")); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(r).ReadString('\n'); err != nil || line != "a line\n" {
		t.Errorf("got %q, %v", line, err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}
