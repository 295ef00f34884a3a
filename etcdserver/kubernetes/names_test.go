package kubernetes

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// names returns the names of the tests in a table.
func names[Storage any](tests []upstreamTest[Storage]) map[string]bool {
	names := map[string]bool{}
	for _, test := range tests {
		names[test.upstream] = true
	}
	return names
}

// upstreamTests returns the names of the tests that Kubernetes exports, without benchmarks.
func upstreamTests(t *testing.T) []string {
	t.Helper()
	list := exec.Command("go", "list", "-f", "{{.Dir}}", "k8s.io/apiserver/pkg/storage/testing")
	list.Stderr = t.Output()
	dir, err := list.Output()
	if err != nil {
		t.Fatalf("%v: %v", list, err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range parsed.Decls {
			f, ok := declaration.(*ast.FuncDecl)
			if ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Run") && !strings.HasPrefix(f.Name.Name, "RunBenchmark") {
				names = append(names, f.Name.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// TestUpstreamTests compares the tables with the tests that Kubernetes exports: a new test there must be added here.
func TestUpstreamTests(t *testing.T) {
	t.Parallel()
	all := upstreamTests(t)
	if len(all) < 60 {
		t.Fatalf("found %d tests of Kubernetes, want 60 or more: %q", len(all), all)
	}
	for table, c := range map[string]struct {
		run map[string]bool
		not map[string]string
	}{
		"storage": {names(storageTests), notWithoutCache},
		"cache":   {names(cacheTests), notWithCache},
	} {
		for _, name := range all {
			if _, not := c.not[name]; c.run[name] == not {
				t.Errorf("the table %s must either run %s or give a reason for its omission: it is run: %t, has a reason: %t", table, name, c.run[name], not)
			}
			delete(c.run, name)
		}
		for name := range maps.Keys(c.run) {
			t.Errorf("%s: Kubernetes has no %s", table, name)
		}
	}
}
