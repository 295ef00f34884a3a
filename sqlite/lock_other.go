//go:build !unix || solaris || illumos || aix

package sqlite

import "os"

// Without flock, writers of different processes compete for SQLite's own lock, which is less fair.

func tryLock(*os.File) (bool, error) { return true, nil }

func waitLock(*os.File) error { return nil }

func unlock(*os.File) error { return nil }
