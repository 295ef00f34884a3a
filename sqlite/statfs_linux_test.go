package sqlite

import (
	"errors"
	"strings"
	"testing"

	"github.com/ncruces/go-sqlite3"
)

func TestNetworkFileSystems(t *testing.T) {
	t.Parallel()
	for magic, want := range map[uint32]string{0x6969: "NFS", 0xff534d42: "SMB", 0xfe534d42: "SMB", 0xef53: "", 0x01021994: ""} {
		if got := networkName(magic); got != want {
			t.Errorf("file system %#x has name %q, expected %q", magic, got, want)
		}
	}
	if got := networkFileSystem("/proc"); got != "" {
		t.Errorf("/proc has name %q, expected none", got)
	}
}

func TestFullDisk(t *testing.T) {
	t.Parallel()
	const full = "/proc" // never has free space
	if err := withDiskFull(full, sqlite3.IOERR_WRITE); !errors.Is(err, sqlite3.IOERR_WRITE) || !strings.Contains(err.Error(), "no space left on the disk of "+full) {
		t.Errorf("got error %v, expected no space left on the disk", err)
	}
	if err := withDiskFull(full, sqlite3.BUSY); err != sqlite3.BUSY {
		t.Errorf("an error without I/O: got %v, expected it unchanged", err)
	}
	if err := withDiskFull("/no such folder", sqlite3.IOERR); err != sqlite3.IOERR {
		t.Errorf("an unknown disk: got %v, expected the error unchanged", err)
	}
}
