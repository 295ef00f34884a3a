package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// VersionLine returns the build information of the Go toolchain: the version of the module, and the commit.
func VersionLine() string {
	commit, changed := "", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				commit = ", commit " + s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				changed = " with changes"
			}
		}
	}
	return fmt.Sprintf("ashlar %s (%s%s%s)", BuildVersion(), runtime.Version(), commit, changed)
}

// BuildVersion returns the version of the module that the program was built from.
func BuildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
