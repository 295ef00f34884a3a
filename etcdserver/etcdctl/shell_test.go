//go:build integration

package etcdctl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// timeout bounds the time of a command.
const timeout = 3 * time.Minute

// shell runs commands against one server. It stores values for later commands, and values that always differ between two servers.
type shell struct {
	t        *testing.T
	program  string
	endpoint string
	client   *clientv3.Client
	after    []int64           // the revision after each step
	marks    map[string]string // the values of marks
	leases   []string          // in hexadecimal, in the order of their grants
}

// answer is the output of a command, without the parts that always differ between two servers.
type answer struct{ out, err string }

// do runs a step.
func (s *shell) do(one step) answer {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), timeout)
	defer cancel()
	args := []string{"--endpoints=" + s.endpoint, "--command-timeout=2m"}
	for _, arg := range one.args {
		args = append(args, s.given(arg))
	}
	cmd := exec.CommandContext(ctx, s.program, args...)
	cmd.Dir = s.t.TempDir()
	in, err := cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	out := newPrinted()
	complaints := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, complaints
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	if _, err := io.WriteString(in, s.given(one.stdin)); err != nil {
		s.t.Error(err)
	}
	if one.until == "" { // otherwise it may end with its input
		_ = in.Close() // a command without input may have ended
	}
	for _, next := range one.then {
		out.await(s.t, next.after)
		s.do(next.step)
	}
	if one.until != "" {
		out.await(s.t, one.until)
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			s.t.Error(err)
		}
	}
	err = cmd.Wait()
	if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) {
		s.t.Fatalf("%q: %v", one.args, err)
	}
	if ctx.Err() != nil {
		s.t.Fatalf("%q did not end within %v: %s%s", one.args, timeout, out, complaints)
	}
	printed := out.String()
	s.remember(ctx, one.mark, printed)
	if one.until != "" { // later output depends on the time of the interrupt
		printed = printed[:strings.Index(printed, one.until)+len(one.until)]
	}
	return answer{fmt.Sprintf("%s\nexit code %d", s.normal(printed), cmd.ProcessState.ExitCode()), s.normal(complaints.String())}
}

// given replaces marks by their values.
func (s *shell) given(text string) string {
	for mark, value := range s.marks {
		text = strings.ReplaceAll(text, mark, value)
	}
	return text
}

var (
	granted = regexp.MustCompile(`lease ([0-9a-f]+) granted|"ID":([0-9]+),"TTL"`)
	// Log lines are not compared; errors follow them.
	logged = regexp.MustCompile(`(?m)^\{"level":.*\n`)
	took   = regexp.MustCompile(`(took[ =:"]+)[0-9.]+[µnm]?s`)
	left   = regexp.MustCompile(`(remaining\(|"ttl":)[0-9]+`)
	header = regexp.MustCompile(`("cluster_id":|"member_id":|"raft_term":|"ClusterID" : |"MemberID" : |"RaftTerm" : )[0-9]+`)
	// The revisions in the output of the printers.
	revisions = regexp.MustCompile(
		`((?:"(?:create_|mod_|compact_)?revision":|"(?:Prev)?(?:|Create|Mod|Compact)Revision" : |compacted revision )-?)([0-9]+)`)
)

// remember stores the revision, and the result of a step with a mark.
func (s *shell) remember(ctx context.Context, mark, printed string) {
	s.t.Helper()
	r, err := s.client.Get(ctx, "no such key")
	if err != nil {
		s.t.Fatal(err)
	}
	s.after = append(s.after, r.Header.Revision)
	if mark == "" {
		return
	}
	switch found := granted.FindStringSubmatch(printed); {
	case found != nil:
		id := found[1]
		if id == "" {
			number, err := strconv.ParseInt(found[2], 10, 64)
			if err != nil {
				s.t.Fatal(err)
			}
			id = fmt.Sprintf("%016x", number)
		}
		s.leases = append(s.leases, id)
		s.marks["%"+mark] = id
	default:
		s.marks["@"+mark] = strconv.FormatInt(r.Header.Revision, 10)
	}
}

// normal replaces values that differ with every server: a revision by its step, a lease by its number.
func (s *shell) normal(text string) string {
	text = logged.ReplaceAllString(text, "")
	text = strings.ReplaceAll(text, s.endpoint, "ENDPOINT")
	text = header.ReplaceAllString(text, "${1}0")
	text = took.ReplaceAllString(text, "${1}TIME")
	text = left.ReplaceAllString(text, "${1}TIME")
	for i, id := range s.leases {
		text = strings.ReplaceAll(text, id, fmt.Sprintf("LEASE%d", i))
		if number, err := strconv.ParseInt(id, 16, 64); err == nil {
			text = strings.ReplaceAll(text, strconv.FormatInt(number, 10), fmt.Sprintf("LEASE%d", i))
		}
	}
	text = regexp.MustCompile(`\b[0-9a-f]{12,16}\b`).ReplaceAllString(text, "ID") // the lease of a session
	return revisions.ReplaceAllStringFunc(text, func(found string) string {
		parts := revisions.FindStringSubmatch(found)
		number, err := strconv.ParseInt(parts[2], 10, 64)
		if err != nil {
			return found
		}
		return parts[1] + s.step(number)
	})
}

// step names a revision by the first step that reached it.
func (s *shell) step(revision int64) string {
	if revision == 0 {
		return "0"
	}
	for i, until := range s.after {
		if revision <= until {
			return fmt.Sprintf("step%d", i)
		}
	}
	return "future"
}

// printed is the output of a command so far.
type printed struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{} // closed and replaced with every line
}

func newPrinted() *printed { return &printed{more: make(chan struct{})} }

func (p *printed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.more)
	p.more = make(chan struct{})
	return p.text.Write(b)
}

func (p *printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// await waits until a text has been printed.
func (p *printed) await(t *testing.T, text string) {
	t.Helper()
	late := time.After(timeout)
	for {
		p.mu.Lock()
		more, done := p.more, strings.Contains(p.text.String(), text)
		p.mu.Unlock()
		if done {
			return
		}
		select {
		case <-more:
		case <-late:
			t.Fatalf("waiting for %q, printed was %q", text, p)
		}
	}
}
