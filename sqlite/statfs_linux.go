package sqlite

import "golang.org/x/sys/unix"

// networkFileSystem returns the name of the network file system that contains a folder, or "".
func networkFileSystem(folder string) string {
	var info unix.Statfs_t
	if unix.Statfs(folder, &info) != nil {
		return "" // opening the file will report the error
	}
	return networkName(uint32(info.Type))
}

func networkName(magic uint32) string {
	switch magic {
	case unix.NFS_SUPER_MAGIC:
		return "NFS"
	case unix.SMB_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC:
		return "SMB"
	case unix.AFS_SUPER_MAGIC, unix.AFS_FS_MAGIC:
		return "AFS"
	case unix.CODA_SUPER_MAGIC:
		return "Coda"
	case unix.CEPH_SUPER_MAGIC:
		return "Ceph"
	}
	return ""
}

// freeBytes returns the free space of the disk that contains a folder.
func freeBytes(folder string) (free uint64, known bool) {
	var info unix.Statfs_t
	if unix.Statfs(folder, &info) != nil {
		return 0, false
	}
	return info.Bavail * uint64(info.Bsize), true
}
