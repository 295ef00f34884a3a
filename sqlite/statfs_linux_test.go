package sqlite

import "testing"

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
