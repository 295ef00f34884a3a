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
	literal := regexp.MustCompile(`(?:Violation\{|report\(|odd\(|g\.check\()"([^"]+)"`)
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

// modelChecks returns the checks of the topic Histories, as its sources have them.
func modelChecks(t *testing.T) (names []string) {
	t.Helper()
	literal := regexp.MustCompile(`(?:failCheck\(|violation\{|succeeds\(|check :?= |allFilter, )"([^"]+)"`)
	for _, file := range append(must[[]string](t)(filepath.Glob("model_*.go")), "histories.go") {
		for _, m := range literal.FindAllStringSubmatch(string(must[[]byte](t)(os.ReadFile(file))), -1) {
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

// Every case, every check of package faults, and every check of the histories belongs to exactly one guarantee. The histories belong
// to several.
func TestEverythingHasAGuarantee(t *testing.T) {
	count, model := map[string]int{}, map[string]int{}
	for _, g := range Guarantees() {
		isHistory := func(name string) bool { return strings.HasPrefix(name, "Histories/") }
		if len(g.Model) > 0 && !slices.ContainsFunc(g.Cases, isHistory) {
			t.Errorf("no history is named for %q", g.Text)
		}
		for _, name := range g.Model {
			model[name]++
		}
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
		if count[name] != 1 && !strings.HasPrefix(name, "Histories/") || count[name] == 0 {
			t.Errorf("%s is there for %d guarantees", name, count[name])
		}
		delete(count, name)
	}
	for _, name := range modelChecks(t) {
		if model[name] != 1 {
			t.Errorf("the check %q of the histories is there for %d guarantees", name, model[name])
		}
		delete(model, name)
	}
	for name := range model {
		t.Errorf("a guarantee names %q, which is no check of the histories", name)
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
