package faults

import (
	"fmt"
	"math"
	"strings"
	"time"
)

func shortKey(key string) string { return strings.TrimPrefix(key, "faulty-") }

func formatTime(d time.Duration) string {
	if d == forever {
		return "?"
	}
	return fmt.Sprintf("%.6fs", d.Seconds())
}

// joinLines formats values as lines under a heading.
func joinLines[T fmt.Stringer](heading string, all []T) string {
	var s strings.Builder
	s.WriteString(heading)
	for _, line := range all {
		fmt.Fprintf(&s, "\n    %s", line)
	}
	return s.String()
}

// forever is the end of a call that has not ended.
const forever = time.Duration(math.MaxInt64)
