package paging_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/paging"
	"github.com/ashlar-dev/storage/internal/spill"
)

// TestAListingOfOthersThatCannotBeFreed has a finished listing make room for a new one, and its file fail to close: the new one
// is held, and its caller hears nothing of it. Not parallel: it closes a file behind the back of its owner.
func TestAListingOfOthersThatCannotBeFreed(t *testing.T) {
	s := shelf(t, paging.Options{Listings: 1})
	broken := spill.New(0)
	if err := errors.Join(broken.Append([]byte("one")), broken.Append([]byte("two")), broken.Seal()); err != nil {
		t.Fatal(err)
	}
	token, err := s.Hold(filter, "", broken)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Next(filter, token, 10); err != nil { // its last page
		t.Fatal(err)
	}
	if err := syscall.Close(spoolFile(t)); err != nil {
		t.Fatal(err)
	}
	token, err = s.Hold(filter, "", rows(t, 10))
	if err != nil {
		t.Errorf("the caller of another listing hears of it: %v", err)
	} else if _, err := s.Next(filter, token, 10); err != nil { // its last page, so that it makes room
		t.Error(err)
	}
	if _, err := s.Hold(filter, "", rows(t, 10)); errors.Is(err, storage.ErrInconsistent) {
		t.Errorf("a listing that nobody has a token of keeps its place: %v", err)
	}
}

// spoolFile finds the descriptor of the one spool that has a file.
func spoolFile(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for _, one := range all {
		target, _ := os.Readlink(filepath.Join("/proc/self/fd", one.Name()))
		if n, err := strconv.Atoi(one.Name()); err == nil && strings.Contains(target, "ashlar-snapshot-") {
			found = append(found, n)
		}
	}
	if len(found) != 1 {
		t.Fatal(fmt.Sprint("files of spools: ", found, ", expected one"))
	}
	return found[0]
}
