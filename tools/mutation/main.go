// Command mutation changes the code of a package in small ways, one at a time, and lists the changes that its tests do not detect. Such a change, a
// mutant, is a comparison with its negation or with another bound, or another operator of arithmetic.
//
// All mutants are compiled into one test binary, which the environment variable MUTANT selects from. So a mutant takes as long as the tests need to
// detect it, and nothing is compiled for it. The files of the package stay as they are.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	log.SetFlags(0)
	pkg := flag.String("pkg", "", "the directory of the package")
	tests := flag.String("tests", "", "the directory of the tests, by default the package")
	only := flag.String("only", "", "a regular expression of the mutants to test, such as file.go:12:")
	flag.Usage = func() {
		log.Println("usage: mutation -pkg DIRECTORY [flags] [flags of the test binary]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if *tests == "" {
		*tests = *pkg
	}
	selected, err := regexp.Compile(*only)
	if err == nil {
		err = run(*pkg, *tests, selected, flag.Args())
	}
	if err != nil {
		log.Fatal(err)
	}
}

// run tests the selected mutants of a package and prints the survivors. A mutant that the tests do not execute has survived.
func run(pkg, tests string, selected *regexp.Regexp, args []string) error {
	p, exports, err := list(pkg)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutation")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "tests")
	mutants, err := build(p, exports, dir, binary, tests)
	if err != nil {
		return err
	}
	executedFile := filepath.Join(dir, "executed")
	if err := os.WriteFile(executedFile, nil, 0o600); err != nil {
		return err
	}
	limit := 10 * time.Minute // of a run of the tests
	test := func(id int, env ...string) (status string, output []byte) {
		flags := []string{"-test.v", "-test.failfast", "-test.parallel", "16", "-test.timeout", limit.String()}
		c := exec.Command(binary, append(flags, args...)...)
		end := func() { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) } // with the processes that the tests have started
		w := &failureWriter{failed: end}
		c.Dir, c.Env, c.Stdout, c.Stderr = tests, append(append(os.Environ(), env...), "MUTANT="+strconv.Itoa(id)), w, w
		c.WaitDelay, c.SysProcAttr = time.Second, &syscall.SysProcAttr{Setpgid: true}
		err := c.Run()
		end()
		switch {
		case w.isFailed:
			return "killed", w.output
		case err == nil:
			return "lived", w.output
		case bytes.Contains(w.output, []byte("panic: test timed out")):
			return "timed out", w.output
		}
		return "killed", w.output
	}
	began := time.Now()
	if status, output := test(0, "MUTANTS_EXECUTED="+executedFile); status != "lived" {
		return fmt.Errorf("without a mutant the tests fail: %s", output)
	}
	limit = 4*time.Since(began) + 10*time.Second // a busy machine makes tests slower; a mutant can make them hang
	executed, err := os.ReadFile(executedFile)
	if err != nil {
		return err
	}
	isExecuted := map[string]bool{}
	for id := range strings.Lines(string(executed)) {
		isExecuted[strings.TrimSpace(id)] = true
	}
	counts, total := map[string]int{}, 0
	for i, m := range mutants {
		name := fmt.Sprintf("%s:%d:%d: %s", filepath.Base(m.position.Filename), m.position.Line, m.position.Column, m.change)
		if !selected.MatchString(name) {
			continue
		}
		status, note := "lived", " (not executed)"
		if isExecuted[strconv.Itoa(i+1)] {
			status, _ = test(i + 1)
			note = ""
		}
		total++
		if counts[status]++; status != "killed" {
			fmt.Printf("%s: %s%s\n", name, status, note)
		}
	}
	fmt.Printf("%s: %d mutants, %d killed, %d timed out (%d %% detected), %d lived\n", pkg, total, counts["killed"], counts["timed out"],
		100*(total-counts["lived"])/max(total, 1), counts["lived"])
	return nil
}

// failureWriter keeps the output of tests and calls failed when a test has failed: others may hang.
type failureWriter struct {
	failed   func()
	output   []byte
	isFailed bool
}

// Write implements io.Writer.
func (w *failureWriter) Write(text []byte) (int, error) {
	w.output = append(w.output, text...)
	if !w.isFailed && bytes.Contains(w.output, []byte("--- FAIL: ")) {
		w.isFailed = true
		w.failed()
	}
	return len(text), nil
}

// goPackage is a part of the output of go list.
type goPackage struct {
	ImportPath, Dir, Export, Name string
	GoFiles                       []string
}

// list returns a package, and the files with the exported names of all that it imports.
func list(dir string) (p goPackage, exports map[string]string, err error) {
	c := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,Name,GoFiles", "./"+dir)
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		return p, nil, fmt.Errorf("list the package: %w", err)
	}
	exports = map[string]string{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var next goPackage
		if err := dec.Decode(&next); errors.Is(err, io.EOF) {
			return p, exports, nil // the package is the last one
		} else if err != nil {
			return p, nil, err
		}
		exports[next.ImportPath], p = next.Export, next
	}
}

// build builds the test binary with all mutants.
func build(p goPackage, exports map[string]string, dir, binary, tests string) ([]mutant, error) {
	r := &rewriter{
		fset: token.NewFileSet(), info: &types.Info{Types: map[ast.Expr]types.TypeAndValue{}},
		posts: map[ast.Node]bool{}, inits: map[ast.Node]bool{},
	}
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(r.fset, filepath.Join(p.Dir, name), nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	check := types.Config{Importer: importer.ForCompiler(r.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
	if _, err := check.Check(p.ImportPath, r.fset, files, r.info); err != nil {
		return nil, err
	}
	replace := map[string]string{}
	write := func(name, text string) error {
		to := filepath.Join(dir, name)
		replace[filepath.Join(p.Dir, name)] = to
		return os.WriteFile(to, []byte(text), 0o600)
	}
	for i, f := range files {
		source, err := os.ReadFile(filepath.Join(p.Dir, p.GoFiles[i]))
		if err != nil {
			return nil, err
		}
		if err := write(p.GoFiles[i], r.file(f, source)); err != nil {
			return nil, err
		}
	}
	if err := write("mutation_switches.go", "package "+p.Name+"\n"+fmt.Sprintf(switches, len(r.mutants)+1)); err != nil {
		return nil, err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, err
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		return nil, err
	}
	if out, err := exec.Command("go", "test", "-vet=off", "-c", "-overlay", list, "-o", binary, "./"+tests).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the tests: %w\n%s", err, out)
	}
	return r.mutants, nil
}
