package faults

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// String says what the call was and what it was told.
func (c *call) String() string {
	var parts []string
	for _, p := range c.parts {
		if len(parts) == 6 {
			parts = append(parts, fmt.Sprintf("and %d more", len(c.parts)-6))
			break
		}
		parts = append(parts, p.String())
	}
	text := fmt.Sprintf("[%s to %s] %s on handle %d: %s", moment(c.begin), moment(c.returned), c.client, c.handle, c.kind)
	if len(parts) > 0 {
		text += " (" + strings.Join(parts, "; ") + ")"
	}
	if c.owner != "" {
		text += " of " + c.owner
	}
	switch {
	case c.fate == done && c.owner != "":
		return fmt.Sprintf("%s: %s", text, c.children())
	case c.fate == done:
		return text + ": done"
	case c.fate == unknown:
		return fmt.Sprintf("%s: outcome unknown: %v", text, c.err)
	}
	return fmt.Sprintf("%s: refused: %v", text, c.err)
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
