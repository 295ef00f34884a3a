package test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/ashlar-dev/storage"

// A file that uses a name declared in another file of its package depends on that file. Files that depend on each other in a circle have no
// first file to read.
func TestFilesHaveNoCycles(t *testing.T) {
	t.Parallel()
	exports := map[string]string{}
	packages := listPackages(t)
	for _, p := range packages {
		exports[p.ImportPath] = p.Export
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, p := range packages {
		name, ours := strings.CutPrefix(p.ImportPath, module+"/")
		if !ours && p.ImportPath != module || strings.HasPrefix(name, "resourcepb") {
			continue
		}
		if cycle := largestCycle(dependencies(t, fset, imports, p)); len(cycle) > 0 {
			t.Errorf("%s: %d files depend on each other, expected none: %s", p.ImportPath, len(cycle), strings.Join(cycle, " "))
		}
	}
}

type listedPackage struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// listPackages returns the packages of the module and their dependencies, with the files of their export data. Under the race detector
// it uses the packages compiled for the tests, because compiling all dependencies once more takes minutes.
func listPackages(t *testing.T) (packages []listedPackage) {
	t.Helper()
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles"}
	if build, ok := debug.ReadBuildInfo(); ok && slices.Contains(build.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race")
	}
	list := exec.CommandContext(t.Context(), "go", append(args, "./...")...)
	list.Dir = filepath.Join("..", "..")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listedPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

// dependencies returns, for each file of a package, the files that declare the names it uses.
func dependencies(t *testing.T, fset *token.FileSet, imports types.Importer, p listedPackage) map[string][]string {
	t.Helper()
	var files []*ast.File
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: imports}
	pkg, err := config.Check(p.ImportPath, fset, files, info)
	if err != nil {
		t.Fatal(err)
	}
	uses := map[string][]string{}
	for ident, object := range info.Uses {
		if object.Pkg() != pkg {
			continue
		}
		if generic, ok := object.(interface{ Origin() *types.Var }); ok {
			object = generic.Origin()
		} else if generic, ok := object.(*types.Func); ok {
			object = generic.Origin()
		}
		from, to := filepath.Base(fset.Position(ident.Pos()).Filename), filepath.Base(fset.Position(object.Pos()).Filename)
		if from != to {
			uses[from] = append(uses[from], to)
		}
	}
	return uses
}

// largestCycle returns the largest set of files that all reach each other. It compares the sets of files that each file reaches,
// which is quick for the few files of a package.
func largestCycle(uses map[string][]string) (largest []string) {
	reached := map[string]map[string]bool{}
	for from := range uses {
		reached[from] = map[string]bool{}
		for next := []string{from}; len(next) > 0; {
			file := next[0]
			next = next[1:]
			for _, to := range uses[file] {
				if !reached[from][to] {
					reached[from][to] = true
					next = append(next, to)
				}
			}
		}
	}
	for from, files := range reached {
		var cycle []string
		for to := range files {
			if reached[to][from] {
				cycle = append(cycle, to)
			}
		}
		if len(cycle) > len(largest) {
			largest = cycle
		}
	}
	return largest
}
