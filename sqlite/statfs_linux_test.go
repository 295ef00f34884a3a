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
			t.Errorf("%#x is %q, expected %q", magic, got, want)
		}
	}
	if got := networkFileSystem("/proc"); got != "" {
		t.Errorf("/proc is %q", got)
	}
}

func TestFullDisk(t *testing.T) {
	t.Parallel()
	const full = "/proc" // there never is room
	if err := withDiskFull(full, sqlite3.IOERR_WRITE); !errors.Is(err, sqlite3.IOERR_WRITE) || !strings.Contains(err.Error(), "no space left on the disk of "+full) {
		t.Errorf("got %v", err)
	}
	if err := withDiskFull(full, sqlite3.BUSY); err != sqlite3.BUSY {
		t.Errorf("another error: got %v", err)
	}
	if err := withDiskFull("/no such folder", sqlite3.IOERR); err != sqlite3.IOERR {
		t.Errorf("an unknown disk: got %v", err)
	}
}
