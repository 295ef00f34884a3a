//go:build unix && !linux

package sqlite

func identify(path string) (fileID, uint64, error) { return identifyByStat(path) }
