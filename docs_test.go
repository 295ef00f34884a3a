package storage_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// suiteCases returns the names of the conformance suite's cases, as topic/case.
func suiteCases(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob("conformance/*.go")
	if err != nil {
		t.Fatal(err)
	}
	topic := regexp.MustCompile(`= topic\{\s*(?:name: )?"(\w+)"`)
	name := regexp.MustCompile(`\{name: "(\w+)"`)
	cases := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		in := topic.FindSubmatch(text)
		if in == nil {
			continue
		}
		for _, c := range name.FindAllSubmatch(text, -1) {
			cases[string(in[1])+"/"+string(c[1])] = true
		}
	}
	return cases
}

// Every test that the documents name exists.
func TestDocumentsNameRealCases(t *testing.T) {
	t.Parallel()
	cases := suiteCases(t)
	text, err := os.ReadFile("docs/semantics.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([A-Z]\\w+/\\w+)`").FindAllSubmatch(text, -1)
	if len(named) < 20 || len(cases) < 20 {
		t.Fatalf("found %d cases named in the document and %d in the suite: the search is broken", len(named), len(cases))
	}
	for _, n := range named {
		if !cases[string(n[1])] {
			t.Errorf("docs/semantics.md names %s, which is no case of the suite", n[1])
		}
	}
}

// The excerpts in the tutorial are code of the package that it walks through, which is built and tested.
func TestTutorialExcerpts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(tutorial + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var code []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code = append(code, string(text))
	}
	page, err := os.ReadFile("docs/writing-a-backend.md")
	if err != nil {
		t.Fatal(err)
	}
	excerpts := regexp.MustCompile("(?ms)^ *```go\n(.*?)^ *```$").FindAllSubmatch(page, -1)
	if len(excerpts) < 15 || len(code) < 5 {
		t.Fatalf("found %d excerpts and %d files: the search is broken", len(excerpts), len(code))
	}
	for _, e := range excerpts {
		if !slices.ContainsFunc(code, func(file string) bool { return strings.Contains("\n"+file, "\n"+string(e[1])) }) {
			t.Errorf("docs/writing-a-backend.md has an excerpt that is not in %s:\n%s", tutorial, e[1])
		}
	}
}
