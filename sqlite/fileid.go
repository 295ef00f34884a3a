package sqlite

// fileID identifies a file by its device and inode. The system gives an inode to another file only after the last
// descriptor is closed, so no other file gets the identity of an open one.
type fileID struct{ device, inode uint64 }
