package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"strings"
)

// mutant is one change.
type mutant struct {
	position token.Position
	change   string
}

// rewriter replaces operators by calls of the functions in switches.
type rewriter struct {
	fset    *token.FileSet
	info    *types.Info
	source  []byte            // of the current file
	posts   map[ast.Node]bool // statements that stay: the last parts of the headers of loops
	inits   map[ast.Node]bool // statements that an if cannot replace: those in the header of another if
	mutants []mutant
}

// The operators that replace others.
var (
	bounds     = map[token.Token]token.Token{token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR}
	negations  = map[token.Token]token.Token{token.EQL: token.NEQ, token.NEQ: token.EQL, token.LSS: token.GEQ, token.GEQ: token.LSS, token.GTR: token.LEQ, token.LEQ: token.GTR}
	arithmetic = map[token.Token]token.Token{token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL, token.REM: token.MUL}
)

// file returns the text of a file with its mutants.
func (r *rewriter) file(f *ast.File, source []byte) string {
	r.source = source
	head := string(source[:r.offset(f.Package)])
	return head + r.copy(f, f.Package, f.FileEnd, true)
}

func (r *rewriter) offset(p token.Pos) int { return r.fset.Position(p).Offset }

// text returns the text of a node with its mutants.
func (r *rewriter) text(n ast.Node) string { return r.copy(n, n.Pos(), n.End(), false) }

// copy returns the text between two positions of a node with its mutants, without the one of the node itself if inside is set.
func (r *rewriter) copy(n ast.Node, from, to token.Pos, inside bool) string {
	var out strings.Builder
	ast.Inspect(n, func(c ast.Node) bool {
		switch d := c.(type) {
		case nil:
			return false
		case *ast.GenDecl:
			if d.Tok == token.CONST {
				return false
			}
		case *ast.ForStmt:
			r.posts[d.Post] = true
		case *ast.IfStmt:
			r.inits[d.Init] = true
		case *ast.SwitchStmt:
			r.inits[d.Init] = true
		}
		if inside && c == n {
			return true
		}
		text := r.mutate(c)
		if text == "" {
			return true
		}
		out.Write(r.source[r.offset(from):r.offset(c.Pos())])
		out.WriteString(text)
		from = c.End()
		return false
	})
	out.Write(r.source[r.offset(from):r.offset(to)])
	return out.String()
}

// add adds a mutant and returns its number.
func (r *rewriter) add(at token.Pos, was, is token.Token) int {
	r.mutants = append(r.mutants, mutant{r.fset.Position(at), was.String() + " to " + is.String()})
	return len(r.mutants)
}

// mutate returns the replacement of a node, "" for none.
func (r *rewriter) mutate(n ast.Node) string {
	switch e := n.(type) {
	case *ast.BinaryExpr:
		switch typ := r.info.Types[e]; {
		case typ.Value != nil || typ.Type == nil:
		case negations[e.Op] != 0:
			return r.comparison(e)
		case arithmetic[e.Op] != 0 && isNumber(typ.Type):
			x, y, id := r.text(e.X), r.text(e.Y), r.add(e.OpPos, e.Op, arithmetic[e.Op])
			return fmt.Sprintf("mutArithmetic_(%d, %s, %s, '%s')", id, x, y, e.Op)
		}
	case *ast.UnaryExpr:
		if typ := r.info.Types[e]; e.Op == token.SUB && typ.Value == nil && isNumber(typ.Type) {
			x := r.text(e.X)
			return fmt.Sprintf("mutArithmetic_(%d, 0, %s, '-')", r.add(e.OpPos, token.SUB, token.ADD), x)
		}
	case *ast.IncDecStmt:
		if r.posts[n] {
			return ""
		}
		other := token.DEC
		if e.Tok == token.DEC {
			other = token.INC
		}
		x := r.text(e.X)
		text := fmt.Sprintf("if mutSelects_(%d) { %s%s } else { %s%s }", r.add(e.TokPos, e.Tok, other), x, other, x, e.Tok)
		if r.inits[n] {
			text = "func() { " + text + " }()"
		}
		return text
	}
	return ""
}

// comparison returns the replacement of a comparison. Another bound differs for equal operands only.
func (r *rewriter) comparison(e *ast.BinaryExpr) string {
	x, y := r.text(e.X), r.text(e.Y)
	text := x + " " + e.Op.String() + " " + y
	switch e.Op {
	case token.LSS, token.GTR:
		text = fmt.Sprintf("%s || mutSelects_(%d) && %s == %s", text, r.add(e.OpPos, e.Op, bounds[e.Op]), x, y)
	case token.LEQ, token.GEQ:
		text = fmt.Sprintf("%s && !(mutSelects_(%d) && %s == %s)", text, r.add(e.OpPos, e.Op, bounds[e.Op]), x, y)
	}
	return fmt.Sprintf("mutNegation_(%d, %s)", r.add(e.OpPos, e.Op, negations[e.Op]), text)
}

// isNumber reports whether a type has the operators of arithmetic in each pair.
func isNumber(t types.Type) bool {
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&(types.IsInteger|types.IsFloat) != 0 && b.Info()&types.IsUntyped == 0
}

// switches is the format of the code of the functions that contain the mutants. Its argument is the number of mutants plus one. The functions append
// the numbers of the executed mutants to the file MUTANTS_EXECUTED, if there is one.
const switches = `
import (
	mutos_ "os"
	mutstrconv_ "strconv"
	mutatomic_ "sync/atomic"
)

var mutSelected_, _ = mutstrconv_.Atoi(mutos_.Getenv("MUTANT"))

var mutFile_, _ = mutos_.OpenFile(mutos_.Getenv("MUTANTS_EXECUTED"), mutos_.O_APPEND|mutos_.O_WRONLY, 0)

var mutExecuted_ [%d]mutatomic_.Bool

func mutSelects_(id int) bool {
	if mutFile_ != nil && !mutExecuted_[id].Swap(true) {
		_, _ = mutFile_.WriteString(mutstrconv_.Itoa(id) + "\n")
	}
	return mutSelected_ == id
}

func mutNegation_(id int, is bool) bool { return is != mutSelects_(id) }

type mutNumber_ interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr | ~float32 | ~float64
}

func mutArithmetic_[T mutNumber_](id int, x, y T, op byte) T {
	if mutSelects_(id) {
		switch op {
		case '+':
			return x - y
		case '-':
			return x + y
		case '*':
			return x / y
		}
		return x * y
	}
	switch op {
	case '+':
		return x + y
	case '-':
		return x - y
	case '*':
		return x * y
	case '/':
		return x / y
	}
	return x - x/y*y
}
`
