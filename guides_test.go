package storage_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The Go code in docs/library.md is part of tested examples.
func TestLibraryGuideExcerpts(t *testing.T) {
	t.Parallel()
	var code []string
	for _, file := range []string{"example_test.go", "history/example_test.go", "typed/example_test.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code = append(code, string(text))
	}
	page, err := os.ReadFile("docs/library.md")
	if err != nil {
		t.Fatal(err)
	}
	excerpts := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllSubmatch(page, -1)
	if len(excerpts) < 4 {
		t.Fatalf("found %d excerpts in docs/library.md, expected at least 4", len(excerpts))
	}
	for _, e := range excerpts {
		if !slices.ContainsFunc(code, func(file string) bool { return strings.Contains("\n"+file, "\n"+string(e[1])) }) {
			t.Errorf("docs/library.md has an excerpt that is not in an example:\n%s", e[1])
		}
	}
}

// The Go code in docs/controllers.md is part of a tested example.
func TestControllersGuideExcerpts(t *testing.T) {
	t.Parallel()
	var code string
	for _, file := range []string{"examples/replicas/main.go", "examples/replicas/main_test.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code += "\n" + string(text)
	}
	page, err := os.ReadFile("docs/controllers.md")
	if err != nil {
		t.Fatal(err)
	}
	excerpts := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllSubmatch(page, -1)
	if len(excerpts) != 3 {
		t.Fatalf("found %d excerpts in docs/controllers.md, expected 3", len(excerpts))
	}
	for _, e := range excerpts {
		if !strings.Contains(code, "\n"+string(e[1])) {
			t.Errorf("docs/controllers.md has an excerpt that is not in examples/replicas:\n%s", e[1])
		}
	}
}

// The picture in README.md is the output of its script.
func TestArchitecturePicture(t *testing.T) {
	t.Parallel()
	drawn, err := exec.Command("bash", "docs/assets/architecture.sh").Output()
	if err != nil {
		t.Fatal(err)
	}
	stored, err := os.ReadFile("docs/assets/architecture.svg")
	if err != nil {
		t.Fatal(err)
	}
	if string(drawn) != string(stored) {
		t.Error("docs/assets/architecture.svg is not current: run make picture")
	}
}
