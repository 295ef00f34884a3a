package etcdctl

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// table returns the documented table: the commands with the same answers in one row, and a row for each difference.
func table() string {
	var same, order []string
	differing := map[string][]string{}
	add := func(list []string, command string) []string {
		if slices.Contains(list, command) {
			return list
		}
		return append(list, command)
	}
	for _, one := range sessions {
		for _, command := range one.commands(func(s step) bool { return s.differs == "" }) {
			same = add(same, "`"+command+"`")
		}
		for _, s := range one.steps {
			if s.differs == "" {
				continue
			}
			order = add(order, s.differs)
			command := "`" + s.command() + "`"
			if s.says != "" {
				command += " " + s.says
			}
			differing[s.differs] = add(differing[s.differs], command)
		}
	}
	text := &strings.Builder{}
	fmt.Fprintf(text, "| `etcdctl` | difference |\n|---|---|\n| %s | none |\n", strings.Join(same, ", "))
	for _, why := range order {
		fmt.Fprintf(text, "| %s | %s |\n", strings.Join(differing[why], ", "), why)
	}
	return text.String()
}

// commands returns the distinct commands of a session.
func (one session) commands(which func(step) bool) (all []string) {
	for _, s := range one.steps {
		if command := s.command(); which(s) && !slices.Contains(all, command) {
			all = append(all, command)
		}
		for _, next := range s.then {
			if command := next.command(); !slices.Contains(all, command) {
				all = append(all, command)
			}
		}
	}
	return all
}

// groups are the commands with subcommands.
var groups = []string{"lease", "endpoint", "alarm", "auth", "snapshot", "member", "downgrade", "user", "role"}

// command returns the command and the names of its options, without arguments.
func (s step) command() string {
	words := s.args[:1]
	if len(s.args) > 1 && slices.Contains(groups, s.args[0]) {
		words = s.args[:2]
	}
	words = slices.Clone(words)
	for i, arg := range s.args {
		if arg == "--" {
			return strings.Join(append(words, "-- COMMAND"), " ")
		}
		name, _, _ := strings.Cut(arg, "=")
		if strings.HasPrefix(name, "-") && !slices.Contains(words, name) {
			if name == "-w" {
				name += " " + s.args[i+1]
			}
			words = append(words, name)
		}
	}
	return strings.Join(words, " ")
}

// The table in the documents matches the tests.
func TestDocumentedTable(t *testing.T) {
	t.Parallel()
	const page = "../../docs/etcd.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := strings.Index(string(text), "| `etcdctl` |"), strings.LastIndex(string(text), "|\n")
	if begin < 0 {
		t.Fatalf("%s has no table of etcdctl", page)
	}
	if got, want := string(text)[begin:end+2], table(); got != want {
		t.Errorf("%s has\n%s\nand the tests\n%s", page, got, want)
	}
}
