package faults

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// docs/reliability.md lists the defects, each with a check that may find it.
func TestDefectsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	section := regexp.MustCompile(`(?s)## Defects.*?\n## `).Find(text)
	rows := regexp.MustCompile(`(?m)^\| ([^|]+) \| \*([^|]+)\* \| [\d,]+ \|$`).FindAllSubmatch(section, -1)
	var listed []string
	for _, row := range rows {
		listed = append(listed, string(row[1]))
	}
	for _, d := range defects {
		i := slices.Index(listed, d.name)
		if i < 0 {
			t.Errorf("docs/reliability.md does not list the defect %q", d.name)
		} else if !regexp.MustCompile(d.by).Match(rows[i][2]) {
			t.Errorf("docs/reliability.md says that %q finds %q, which is for %q", rows[i][2], d.name, d.by)
		}
	}
	if len(listed) != len(defects) {
		t.Errorf("docs/reliability.md lists %d defects, there are %d", len(listed), len(defects))
	}
}
