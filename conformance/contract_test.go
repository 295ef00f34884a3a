package conformance

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// contractSentences returns the sentences of the doc comments of the contract, in order, without code blocks and without comments of functions.
func contractSentences(t *testing.T) (sentences []string) {
	t.Helper()
	end := regexp.MustCompile(`([.?!])\s+([A-Z0-9])`)
	for _, path := range []string{"../storage.go", "../capabilities.go", "../history/history.go"} {
		file := must[*ast.File](t)(parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments))
		comments := file.Comments
		for _, declaration := range file.Decls {
			if function, ok := declaration.(*ast.FuncDecl); ok {
				comments = slices.DeleteFunc(comments, func(c *ast.CommentGroup) bool {
					return c == function.Doc || function.Pos() < c.Pos() && c.Pos() < function.End()
				})
			}
		}
		for _, group := range comments {
			for paragraph := range strings.SplitSeq(group.Text(), "\n\n") {
				if !strings.HasPrefix(paragraph, "\t") && !strings.HasPrefix(paragraph, "#") {
					text := strings.NewReplacer("[*", "", "[", "", "]", "").Replace(strings.Join(strings.Fields(paragraph), " "))
					sentences = append(sentences, strings.Split(end.ReplaceAllString(text, "$1\n$2"), "\n")...)
				}
			}
		}
	}
	return slices.DeleteFunc(sentences, func(s string) bool { return s == "" })
}

// plantedDefects returns the cases and checks that find each planted defect of this suite and of package faults, as the tests list them.
func plantedDefects(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{"half a capability": {"`Cursors/NoHalfCapability`", "`Bookmarks/NoHalfCapability`"}} // TestHalfCapability
	for _, source := range []struct{ files, pattern, quote string }{
		{"*_test.go", `\{bug: "([^"]+)", by: "([^"]+)"`, "`"},
		{"damage_test.go", `\t\{"([a-zA-Z ]+)", "[^"]+()", ?(?:&?damagedStore)`, "`"},
		{"broken_faults_test.go", `\t\{"([^"]+)", "([^"]+)"\}`, "*"},
	} {
		for _, path := range must[[]string](t)(filepath.Glob(source.files)) {
			for _, m := range regexp.MustCompile(source.pattern).FindAllStringSubmatch(string(must[[]byte](t)(os.ReadFile(path))), -1) {
				by := strings.ReplaceAll(m[2], "|", source.quote+", "+source.quote)
				if m[2] == "" {
					by = "Damage/Garbage"
				}
				found[m[1]] = append(found[m[1]], source.quote+by+source.quote)
			}
		}
	}
	if len(found) < 150 {
		t.Fatalf("found %d planted defects: the search is broken", len(found))
	}
	return found
}

// Every sentence of the contract has a row in docs/semantics.md with a planted defect that breaks it and the cases that find the defect, or with the
// reason why there is none.
func TestSentencesHaveDefects(t *testing.T) {
	_, table, _ := strings.Cut(string(must[[]byte](t)(os.ReadFile("../docs/semantics.md"))), "\n| sentence | found by | planted defect |\n|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	defectsOf := make(map[string]string)
	for row := range strings.Lines(table) {
		if cells := strings.Split(row, " | "); len(cells) == 3 {
			defectsOf[strings.TrimPrefix(cells[0], "| ")] = strings.TrimSuffix(strings.TrimSpace(cells[2]), " |")
		}
	}
	planted, tests := plantedDefects(t), 0
	var want strings.Builder
	for _, sentence := range contractSentences(t) {
		var by []string
		names := defectsOf[sentence]
		for name := range strings.SplitSeq(names, "; ") {
			switch {
			case planted[name] != nil:
				by = append(by, planted[name]...)
			case !slices.Contains([]string{"(definition)", "(permission)", "(advice)", "(tests of the adapters)"}, names):
				t.Errorf("%q has the defect %q, which is not planted", sentence, name)
			}
		}
		slices.Sort(by)
		if len(by) > 0 {
			tests++
		}
		fmt.Fprintf(&want, "| %s | %s | %s |\n", sentence, strings.Join(slices.Compact(by), ", "), names)
	}
	if tests < 150 {
		t.Errorf("only %d sentences have a planted defect", tests)
	}
	if strings.TrimRight(table, "\n")+"\n" != want.String() {
		file := filepath.Join(os.TempDir(), "sentences.md")
		t.Errorf("the table in docs/semantics.md is outdated: see %s, %v", file, os.WriteFile(file, []byte(want.String()), 0o600))
	}
}
