package etcdctl

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// table returns the documented table of all commands.
func table() string {
	text := &strings.Builder{}
	fmt.Fprintln(text, "| `etcdctl` | answers as of etcd |\n|---|---|")
	for _, one := range sessions {
		var same []string
		for _, command := range one.commands(func(s step) bool { return s.differs == "" }) {
			same = append(same, "`"+command+"`")
		}
		fmt.Fprintf(text, "| %s | yes |\n", strings.Join(same, ", "))
		reasons := map[string][]string{}
		var order []string
		for _, s := range one.steps {
			if s.differs == "" {
				continue
			}
			if reasons[s.differs] == nil {
				order = append(order, s.differs)
			}
			command := "`" + s.command() + "`"
			if s.says != "" {
				command += " " + s.says
			}
			if !slices.Contains(reasons[s.differs], command) {
				reasons[s.differs] = append(reasons[s.differs], command)
			}
		}
		for _, why := range order {
			fmt.Fprintf(text, "| %s | %s |\n", strings.Join(reasons[why], ", "), why)
		}
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
