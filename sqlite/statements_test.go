package sqlite

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// statementNames returns the names of the files in folder sql.
func statementNames(t *testing.T) (names []string) {
	t.Helper()
	files, err := sqlFiles.ReadDir("sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		names = append(names, strings.TrimSuffix(file.Name(), ".sql"))
	}
	slices.Sort(names)
	return names
}

// prepareFile prepares the statements of a file. It runs all but the last, which the next ones may depend on, and undoes
// them.
func prepareFile(c *conn, name string) (err error) {
	if err := c.db.Exec("SAVEPOINT prepare"); err != nil {
		return err
	}
	defer func() {
		if undo := c.db.Exec("ROLLBACK TO prepare"); err == nil {
			err = undo
		}
	}()
	for rest := statementText(name); strings.TrimSpace(rest) != ""; {
		var s *sqlite3.Stmt
		if s, rest, err = c.db.Prepare(rest); err != nil {
			return err
		}
		if strings.TrimSpace(rest) != "" {
			err = s.Exec()
		}
		if closeErr := s.Close(); err == nil {
			err = closeErr
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Every file of folder sql gives a reason and is valid SQL for a store in one of its states: new, of this version, or at
// a step of an upgrade from version 1.
func TestStatementsAreValid(t *testing.T) {
	t.Parallel()
	connectTo := func(path string) *conn {
		c, err := connect(t.Context(), path, "", role{cache: 1000, busy: fixture.Timeout})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.close() }) // rolls back
		if err := c.exec("begin-immediate"); err != nil {
			t.Fatal(err)
		}
		return c
	}
	present := connectTo(createStore(t))
	if err := present.exec("create-journal"); err != nil {
		t.Fatal(err)
	}
	states := []*conn{connectTo(writeFile(t, newPath(t), "")), present}
	for steps := range len(present.upgrades(meta{version: 1})) {
		c := connectTo(newOldStore(t).path)
		for _, step := range c.upgrades(meta{version: 1})[:steps] {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
		states = append(states, c)
	}
	for _, name := range statementNames(t) {
		if raw, _ := sqlFiles.ReadFile("sql/" + name + ".sql"); !strings.HasPrefix(string(raw), "-- ") {
			t.Errorf("%s does not begin with a comment about its purpose", name)
		}
		var failures []string
		for i, c := range states {
			if err := prepareFile(c, name); err != nil {
				failures = append(failures, fmt.Sprintf("state %d: %v", i, err))
			}
		}
		if len(failures) == len(states) {
			t.Errorf("%s is valid in no state of a store: %s", name, strings.Join(failures, "; "))
		}
	}
}

// The code names every file of folder sql, and no other.
func TestStatementsAreUsed(t *testing.T) {
	t.Parallel()
	names := statementNames(t)
	used := map[string]bool{}
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				if value, err := strconv.Unquote(n.Value); err == nil && slices.Contains(names, value) {
					used[value] = true
				}
			case *ast.CallExpr:
				for _, name := range statementArguments(n) {
					if !slices.Contains(names, name) {
						t.Errorf("%s names statement %q, which has no file", source, name)
					}
					used[name] = true
				}
			}
			return true
		})
	}
	if all := slices.Sorted(maps.Keys(used)); !slices.Equal(all, names) {
		t.Errorf("the code uses %v, the files are %v", all, names)
	}
}

// statementArguments returns the names of statements in a call.
func statementArguments(call *ast.CallExpr) (names []string) {
	method, is := call.Fun.(*ast.SelectorExpr)
	if !is || len(call.Args) == 0 {
		return nil
	}
	args, prefix := call.Args[:1], ""
	switch method.Sel.Name {
	case "query", "queryRow", "exec", "script", "iterate":
	case "createTables":
		args, prefix = call.Args, "create-"
	default:
		return nil
	}
	for _, arg := range args {
		if literal, is := arg.(*ast.BasicLit); is && literal.Kind == token.STRING {
			name, _ := strconv.Unquote(literal.Value)
			names = append(names, prefix+name)
		}
	}
	return names
}
