package faults

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// String says what the call was and what it was told.
func (k *call) String() string {
	var parts []string
	for _, p := range k.parts {
		if len(parts) == 6 {
			parts = append(parts, fmt.Sprintf("and %d more", len(k.parts)-6))
			break
		}
		parts = append(parts, p.String())
	}
	text := fmt.Sprintf("[%s to %s] %s on handle %d: %s", moment(k.begin), moment(k.returned), k.client, k.handle, k.kind)
	if len(parts) > 0 {
		text += " (" + strings.Join(parts, "; ") + ")"
	}
	if k.owner != "" {
		text += " of " + k.owner
	}
	switch {
	case k.fate == done && k.owner != "":
		return fmt.Sprintf("%s: %s", text, k.children())
	case k.fate == done:
		return text + ": done"
	case k.fate == unknown:
		return fmt.Sprintf("%s: outcome unknown: %v", text, k.err)
	}
	return fmt.Sprintf("%s: refused: %v", text, k.err)
}

func (p part) String() string {
	switch p.verb {
	case read:
		return fmt.Sprintf("%s is %s", short(p.key), p.got)
	case write:
		text := fmt.Sprintf("write %s to %s in place of %s", p.name, short(p.key), p.given)
		if p.got.version != "" {
			text += " → " + p.got.version
		}
		return text
	}
	return fmt.Sprintf("%s %s at %s", p.verb, short(p.key), p.given)
}

func (s state) String() string {
	switch {
	case s == state{}:
		return "nothing"
	case s.version == "":
		return "nothing of " + s.uid
	}
	return "version " + s.version
}

func (e event) String() string {
	if e.relisted {
		return fmt.Sprintf("[%s] history was gone, and a list showed %s of %s", moment(e.at), e.now, short(e.key))
	}
	if e.deleted {
		return fmt.Sprintf("[%s] deletion of %s at version %s", moment(e.at), short(e.key), e.now.version)
	}
	text := fmt.Sprintf("[%s] %s wrote %s in place of %s → %s", moment(e.at), e.name, short(e.key), cmp.Or(e.replaces, "nothing"), e.now.version)
	if e.owner != "" {
		text += ", owned by " + e.owner
	}
	return text
}

func short(key string) string { return strings.TrimPrefix(key, "faulty-") }

func moment(d time.Duration) string {
	if d == forever {
		return "?"
	}
	return fmt.Sprintf("%.6fs", d.Seconds())
}

// lines joins lines under a heading.
func lines[T fmt.Stringer](heading string, all []T) string {
	var s strings.Builder
	s.WriteString(heading)
	for _, line := range all {
		fmt.Fprintf(&s, "\n    %s", line)
	}
	return s.String()
}
