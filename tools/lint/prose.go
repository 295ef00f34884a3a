// Command prose reports constructions in comments, tests, messages and documents that make a reader stop: how many there are in
// 1,000 words of each package, and the ten sentences with most of them. Code that reads well has at most 3, and less than 0.5 in
// messages. Improve a sentence by naming its subject and its object, not by replacing one word by another. Run it at the root of the
// module (make prose).
package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"maps"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// constructions are the expressions that count, each once per occurrence.
var constructions = regexp.MustCompile(`(?i)\b(?:` + strings.Join([]string{
	`what|who|whom|whoever|whomever`,                                                   // an unnamed subject
	`nobody|somebody|anybody|everybody`,                                                // name the caller, reader or writer
	`(?:of|by|with|to|for|in|from|at|on|after|before|under|behind|as) (?:which|whose)`, // begin a new sentence
	`(?:that|those) of`,                                                                // repeat the noun
	`(?:the|that|this|another|each|every|no|an?) one`,                                  // likewise
	`tells?|told|hears?|heard|mends?|mended|stands?|stood|lays?|laid`,                  // figurative verbs
	`looks? (?:at|again)|goes on|is away|holds? back|comes? to|gives? up|asks? for|asked|has to`,
	`(?:has|have|had) (?:an?|the|it|them|each|every|its|all|others?|another) (?:\w+ ){0,4}(?:begin|run|stand|wait|end|go|take|make|keep|read|write|return|answer|start|stop|wake|find|try)`,
	`(?:so|nor) (?:is|are|does|do)|so (?:has|have)`, // inversions
}, "|") + `)\b`)

var (
	sentenceEnd = regexp.MustCompile(`[.:;!?]\s+`)
	verb        = regexp.MustCompile(`%[-+#0-9.*]*[a-zA-Z]`)
	notProse    = regexp.MustCompile("^(?:```|\\||#|    |!\\[)")
)

// count is the size of some prose and the number of its constructions.
type count struct{ words, stilted int }

func (c count) rate() float64 { return 1000 * float64(c.stilted) / float64(max(c.words, 1)) }

// sentence is a sentence with constructions.
type sentence struct {
	where, text string
	density     float64 // constructions per word
}

// report collects the figures of a tree.
type report struct {
	packages map[string]map[string]count // by folder and kind
	worst    []sentence
}

func (r *report) add(file string, line int, kind, text string) {
	dir, words := path.Dir(file), len(strings.Fields(text))
	if r.packages[dir] == nil {
		r.packages[dir] = map[string]count{}
	}
	for _, at := range [][2]string{{dir, kind}, {dir, "all"}, {"all", kind}, {"all", "all"}} {
		c := r.packages[at[0]][at[1]]
		r.packages[at[0]][at[1]] = count{c.words + words, c.stilted + len(constructions.FindAllString(text, -1))}
	}
	for _, s := range sentenceEnd.Split(text, -1) {
		if n, words := len(constructions.FindAllString(s, -1)), len(strings.Fields(s)); n > 0 && words >= 5 {
			r.worst = append(r.worst, sentence{fmt.Sprintf("%s:%d", file, line), s, float64(n) / float64(words)})
		}
	}
}

// goFile adds the comments of a Go file and, unless it is a test, its string literals of five words or more.
func (r *report) goFile(file string, text []byte) error {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, text, parser.ParseComments)
	if err != nil || ast.IsGenerated(f) {
		return err
	}
	kind, isTest := "comments", strings.HasSuffix(file, "_test.go")
	if isTest {
		kind = "tests"
	}
	for _, group := range f.Comments {
		for paragraph := range strings.SplitSeq(group.Text(), "\n\n") {
			lines := slices.DeleteFunc(strings.Split(paragraph, "\n"), func(l string) bool { return strings.HasPrefix(l, "\t") })
			r.add(file, fset.Position(group.Pos()).Line, kind, strings.Join(lines, " "))
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && !isTest && lit.Kind == token.STRING && lit.Value[0] == '"' {
			if s, err := strconv.Unquote(lit.Value); err == nil && len(strings.Fields(s)) >= 5 {
				r.add(file, fset.Position(lit.Pos()).Line, "messages", verb.ReplaceAllString(s, "x"))
			}
		}
		return true
	})
	return nil
}

// document adds the paragraphs of a Markdown file, without code, tables and headings.
func (r *report) document(file string, text []byte) {
	code, paragraph := false, ""
	for i, line := range strings.Split(string(text), "\n") {
		code = code != strings.HasPrefix(line, "```")
		if !code && line != "" && !notProse.MatchString(line) {
			paragraph += line + " "
			continue
		}
		r.add(file, i, "docs", paragraph)
		paragraph = ""
	}
}

func main() {
	r := &report{packages: map[string]map[string]count{"all": {}}}
	out, err := exec.Command("git", "ls-files", "*.go", "*.md").Output()
	for _, file := range strings.Fields(string(out)) {
		text, readErr := os.ReadFile(file)
		switch {
		case readErr != nil || strings.Contains(file, "testdata/"): // deleted, or input of a test
		case strings.HasSuffix(file, ".md"):
			r.document(file, text)
		default:
			err = cmp.Or(err, r.goFile(file, text))
		}
	}
	rate := func(dir string) float64 { return r.packages[dir]["all"].rate() }
	worstFirst := func(a, b string) int { return cmp.Or(cmp.Compare(rate(b), rate(a)), cmp.Compare(a, b)) }
	fmt.Println("stilted constructions per 1,000 words\ncomments   tests    docs messages package")
	for _, dir := range slices.SortedFunc(maps.Keys(r.packages), worstFirst) {
		if c := r.packages[dir]; rate(dir) > 0 {
			fmt.Printf("%8.2f %7.2f %7.2f %8.2f %s\n", c["comments"].rate(), c["tests"].rate(), c["docs"].rate(), c["messages"].rate(), dir)
		}
	}
	slices.SortStableFunc(r.worst, func(a, b sentence) int { return cmp.Compare(b.density, a.density) })
	for _, s := range r.worst[:min(10, len(r.worst))] {
		fmt.Printf("%s: %s\n", s.where, s.text)
	}
	if err != nil {
		log.Fatal(err)
	}
}
