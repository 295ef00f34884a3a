package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// faultChecks returns the names of the checks of package faults, as its sources have them.
func faultChecks(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("faults/*.go")
	if err != nil {
		t.Fatal(err)
	}
	literal := regexp.MustCompile(`(?:Violation\{|report\(|odd\()"([^"]+)"`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range literal.FindAllStringSubmatch(string(text), -1) {
			if !slices.Contains(names, m[1]) {
				names = append(names, m[1])
			}
		}
	}
	if len(names) < 20 {
		t.Fatalf("found the checks %q: the search is broken", names)
	}
	return names
}

// Every case and every check belongs to exactly one guarantee.
func TestEverythingHasAGuarantee(t *testing.T) {
	count := map[string]int{}
	for _, g := range Guarantees() {
		for _, name := range append(slices.Clone(g.Cases), g.Checks...) {
			count[name]++
		}
		if len(g.Cases)+len(g.Checks) == 0 {
			t.Errorf("no case and no check belongs to %q", g.Text)
		}
	}
	exist := faultChecks(t)
	for _, topic := range topics {
		for _, c := range topic.cases {
			exist = append(exist, topic.name+"/"+c.name)
		}
	}
	for _, name := range exist {
		if count[name] != 1 {
			t.Errorf("%s is there for %d guarantees", name, count[name])
		}
		delete(count, name)
	}
	for name := range count {
		t.Errorf("a guarantee names %s, which is neither a case nor a check", name)
	}
}

// docs/semantics.md has the same table.
func TestGuaranteesAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../docs/semantics.md")
	if err != nil {
		t.Fatal(err)
	}
	quoted := func(names []string, quote string) string {
		if len(names) == 0 {
			return ""
		}
		return quote + strings.Join(names, quote+", "+quote) + quote
	}
	var want strings.Builder
	for _, g := range Guarantees() {
		fmt.Fprintf(&want, "| %s | %s | %s |\n", g.Text, quoted(g.Cases, "`"), quoted(g.Checks, "*"))
	}
	_, table, _ := strings.Cut(string(doc), "\n|---|---|---|\n")
	if got, _, _ := strings.Cut(table, "\n\n"); got+"\n" != want.String() {
		t.Errorf("the table in docs/semantics.md is not that of Guarantees, which is\n%s", want.String())
	}
}
