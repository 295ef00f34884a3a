package linefile_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/linefile"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// A line that was written in part is followed by whole lines.
func TestLinesAfterShortWrite(t *testing.T) {
	t.Parallel()
	for room, want := range map[int]string{
		0: "next\nlast\n", 1: "f\nnext\nlast\n", 5: "first\nnext\nlast\n", 6: "first\nnext\nlast\n",
	} {
		disk := &fixture.Disk{Free: room}
		f := linefile.New(disk)
		if err := f.Append([]byte("first")); room < 6 && !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("room for %d bytes: %v", room, err)
		}
		for _, more := range []int{0, 1} { // an empty line end may be written before the disk is full again
			disk.Free = more
			if err := f.Append(nil); more == 0 && !errors.Is(err, syscall.ENOSPC) {
				t.Error(err)
			}
		}
		disk.Free = 1000
		for _, line := range []string{"next", "last"} {
			if err := f.Append([]byte(line)); err != nil {
				t.Error(err)
			}
		}
		if got := string(bytes.ReplaceAll(disk.Bytes(), []byte("\n\n"), []byte("\n"))); got != want && got != "\n"+want {
			t.Errorf("room for %d bytes: the lines are %q, want %q", room, got, want)
		}
	}
}

// A file whose last line is incomplete, because a process died, continues with a line of its own.
func TestLinesAfterCrash(t *testing.T) {
	t.Parallel()
	for before, want := range map[string]string{"": "next\n", "whole\n": "whole\nnext\n", "par": "par\nnext\n"} {
		path := filepath.Join(t.TempDir(), "lines")
		if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := linefile.Open(path)
		if err == nil {
			err = errors.Join(f.Append([]byte("next")), f.Sync(), f.Close())
		}
		got, readErr := os.ReadFile(path)
		if err != nil || readErr != nil || string(got) != want {
			t.Errorf("after %q: %q, %v, %v", before, got, err, readErr)
		}
	}
}

// A line that another process wrote in part does not swallow the next line of this one.
func TestLinesAfterShortWriteOfOtherProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lines")
	f, err := linefile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = other.WriteString("par") // then its disk was full, or it was killed
	}
	err = errors.Join(err, other.Close(), f.Append([]byte("next")), f.Append([]byte("last")), f.Sync(), f.Close())
	got, readErr := os.ReadFile(path)
	if err != nil || readErr != nil || string(got) != "par\nnext\nlast\n" {
		t.Errorf("the lines are %q, %v, %v", got, err, readErr)
	}
}

// Sync makes the name of a new file durable in the directory of the file, also behind a symbolic link to a missing file.
func TestSyncBehindLink(t *testing.T) {
	t.Parallel()
	links, files := filepath.Join(t.TempDir(), "links"), t.TempDir()
	if err := os.Mkdir(links, 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(links, "lines")
	if err := os.Symlink(filepath.Join(files, "lines"), link); err != nil {
		t.Fatal(err)
	}
	f, err := linefile.Open(link)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.RemoveAll(links); err != nil { // it holds nothing that Sync has to write
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Errorf("the directory of the link was synced: %v", err)
	}
	if err := os.RemoveAll(files); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err == nil {
		t.Error("the directory of the file was not synced")
	}
}
