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

// adapterFiles are the files that CONTRIBUTING.md names for an adapter; every adapter has each of them, for the same job.
func TestAdaptersHaveTheSameFiles(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	step := regexp.MustCompile(`(?s)A file has the name that it has in other adapters:(.*?)\n\d\. `).FindSubmatch(text)
	if step == nil {
		t.Fatal("CONTRIBUTING.md names no files: the search is broken")
	}
	files := regexp.MustCompile("`(\\w+)\\.go`").FindAllSubmatch(step[1], -1)
	if len(files) < 9 {
		t.Fatalf("CONTRIBUTING.md names %d files: the search is broken", len(files))
	}
	for adapter := range drivers {
		if adapter == tutorial {
			continue // small enough for fewer files
		}
		for _, f := range files {
			name := string(f[1])
			if name == "NAME" {
				name = adapter
			}
			if _, err := os.Stat(filepath.Join(adapter, name+".go")); err != nil {
				t.Errorf("CONTRIBUTING.md names the file %s: %v", f[0], err)
			}
		}
	}
}

// The walks through the adapters, tables in docs/design.md, name things that the code declares.
func TestWalksNameRealCode(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	columns := []string{"", "inmem", "sqlite", "postgres", "etcd", "dynamodb"}
	shared := []string{"driver", "internal/feed", "internal/batch"}
	rows := regexp.MustCompile(`(?m)^\|([^|]+\|){6}$`).FindAllString(string(text), -1)
	checked := 0
	for _, row := range rows {
		for i, cell := range strings.Split(strings.Trim(row, "|"), "|") {
			for _, named := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
				if i == 0 {
					continue
				}
				checked++
				where := append([]string{columns[i]}, shared...)
				if !declares(t, where, named[1]) {
					t.Errorf("docs/design.md names %s, which none of %v declares", named[1], where)
				}
			}
		}
	}
	if checked < 25 {
		t.Errorf("found %d names in the tables: the search is broken", checked)
	}
}

// declares tells whether a package of these folders, or of one below, declares what is named: a file, a function, a type, or a
// method as type.method.
func declares(t *testing.T, folders []string, named string) bool {
	t.Helper()
	if strings.HasSuffix(named, ".go") {
		_, err := os.Stat(named)
		return err == nil
	}
	typ, method, isMethod := strings.Cut(named, ".")
	pattern := `(?m)^((func (\(\w+ \*?\w+(\[\w+\])?\) )?|type )` + named + `\b|\t` + named + ` +[\w*\[])`
	if isMethod {
		pattern = `(?m)^func \(\w+ \*?(?i:` + typ + `)(\[\w+\])?\) ` + method + `\b`
		if slices.Contains([]string{"driver", "feed", "batch"}, typ) {
			pattern = `(?m)^func (\(\w+ \*?\w+(\[\w+\])?\) )?` + method + `\b`
		}
	}
	found := false
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			found = found || regexp.MustCompile(pattern).Match(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}
