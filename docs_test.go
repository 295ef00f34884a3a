package storage_test

import (
	"io/fs"
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

// Every test case named in the documents exists.
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
			t.Errorf("docs/semantics.md names %s, but the suite has no such case", n[1])
		}
	}
}

// The excerpts in the tutorial are tested code of the tutorial's package.
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

// CONTRIBUTING.md names the files of an adapter. Every adapter has all files of the first list, and each file of the second list
// exists in at least one adapter.
func TestAdaptersHaveTheSameFiles(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	step := regexp.MustCompile(`(?s)A file has the name that it has in other adapters:(.*?); and, where (.*?)\n2\. `).FindSubmatch(text)
	if step == nil {
		t.Fatal("CONTRIBUTING.md names no files: the search is broken")
	}
	names := regexp.MustCompile("`(\\w+)\\.go`")
	always, some := names.FindAllSubmatch(step[1], -1), names.FindAllSubmatch(step[2], -1)
	if len(always) < 7 || len(some) < 8 {
		t.Fatalf("CONTRIBUTING.md names %d files and %d more: the search is broken", len(always), len(some))
	}
	has := func(adapter string, name []byte) bool {
		file := string(name)
		if file == "NAME" {
			file = adapter
		}
		_, err := os.Stat(filepath.Join(adapter, file+".go"))
		return err == nil
	}
	in := map[string]int{}
	for adapter := range drivers {
		if adapter == tutorial {
			continue // small enough for fewer files
		}
		for _, f := range always {
			if !has(adapter, f[1]) {
				t.Errorf("CONTRIBUTING.md names the file %s, and %s has none", f[0], adapter)
			}
		}
		for _, f := range some {
			if has(adapter, f[1]) {
				in[string(f[0])]++
			}
		}
	}
	for _, f := range some {
		if in[string(f[0])] == 0 {
			t.Errorf("CONTRIBUTING.md names the file %s, which no adapter has", f[0])
		}
	}
}

// The tables in docs/design.md that trace a call through the adapters name declared functions and files.
func TestTracesNameRealCode(t *testing.T) {
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

// declares reports whether a package in or below these folders declares a file, a function, a type, or a method written as
// type.method.
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
		if slices.Contains([]string{"driver", "feed", "batch", "streams"}, typ) { // package.name
			pattern = `(?m)^(func (\(\w+ \*?\w+(\[\w+\])?\) )?|type )` + method + `\b`
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

// The snippet in the README is a program that compiles.
func TestReadmeSnippet(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("examples/hello/main.go")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "```go\n"+string(program)+"```\n") {
		t.Error("the snippet in README.md is not examples/hello/main.go: copy it there")
	}
}

// Every link from a document to a file of the repository has a target.
func TestLinksInDocuments(t *testing.T) {
	t.Parallel()
	link, fenced := regexp.MustCompile(`\]\(([^)#]+)(?:#[^)]*)?\)`), regexp.MustCompile("(?ms)^```.*?^```$")
	found := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != "." {
			return fs.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(string(text), ""), -1) {
			target := m[1]
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			found++
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), target)); err != nil {
				t.Errorf("%s links to %s: %v", path, target, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found == 0 {
		t.Error("no link found: the search is broken")
	}
}
