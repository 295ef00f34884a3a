package conformancecmd

import (
	"bufio"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/conformance"
	"github.com/ashlar-dev/storage/conformance/faults"
)

// results are the results of one run against a database.
type results struct {
	store, location string
	startTime       time.Time
	took            time.Duration
	cases           []conformance.Result
	faults          *faults.Report // nil if the run had no faults
}

// guaranteeResult is the result for one guarantee.
type guaranteeResult struct {
	Text     string
	Took     time.Duration
	Ran      int      // cases, plus 1 for a run under faults
	Failures []string // violations found
	DataLoss bool     // acknowledged writes were lost
	Skipped  []string // reasons why something was not run
}

// Mark returns the result as one character: kept, broken, or not run.
func (w *guaranteeResult) Mark() string {
	switch {
	case len(w.Failures) > 0:
		return "✗"
	case w.Ran == 0:
		return "–"
	}
	return "✓"
}

// byGuarantee groups the results by guarantee. It omits guarantees that the run did not cover.
func (n *results) byGuarantee() (all []*guaranteeResult) {
	byCase := map[string]conformance.Result{}
	for _, r := range n.cases {
		byCase[r.Case] = r
	}
	var covered []string // checks that belong to a guarantee
	for _, g := range conformance.Guarantees() {
		w := &guaranteeResult{Text: g.Text}
		for _, name := range g.Cases {
			r, found := byCase[name]
			switch {
			case !found:
			case r.NotRun != "":
				if !slices.Contains(w.Skipped, r.NotRun) {
					w.Skipped = append(w.Skipped, r.NotRun)
				}
			case r.Failure != "" && !g.BrokenBy(r):
				w.Skipped = append(w.Skipped, r.Case+" ended early because of another guarantee")
			default:
				w.Ran++
				w.Took += r.Took
				if g.BrokenBy(r) {
					w.Failures = append(w.Failures, r.Case+": "+r.Failure)
				}
			}
		}
		if n.faults != nil {
			n.addFaultResults(g, w)
			covered = append(covered, g.Checks...)
		}
		if w.Ran > 0 || len(w.Skipped) > 0 {
			all = append(all, w)
		}
	}
	if n.faults != nil {
		for _, v := range n.faults.Violations {
			if !slices.Contains(covered, v.Check) {
				all = append(all, &guaranteeResult{Text: v.Check, Ran: 1, Failures: []string{v.Text}})
			}
		}
	}
	return all
}

// lossCheck is the check that detects lost acknowledged writes.
const lossCheck = "acknowledged changes stay"

// addFaultResults adds the results of the run under faults to a guarantee.
func (n *results) addFaultResults(g conformance.Guarantee, w *guaranteeResult) {
	for _, v := range n.faults.Violations {
		if slices.Contains(g.Checks, v.Check) {
			w.Failures = append(w.Failures, fmt.Sprintf("under faults, seed %d: %s", n.faults.Seed, v))
			w.DataLoss = w.DataLoss || v.Check == lossCheck
		}
	}
	switch crashed, disturbed := n.faults.Faults[faults.KillServer] > 0, len(n.faults.Faults) > 0; {
	case len(g.Checks) == 0:
		return
	case len(g.Cases) == 0 && !disturbed:
		w.Skipped = append(w.Skipped, "no fault was injected")
		return
	case slices.Contains(g.Checks, lossCheck) && !crashed:
		w.Skipped = append(w.Skipped, "the database did not crash (see --crash-command)")
	}
	w.Ran++
}

// broken returns the broken guarantees. The loss of acknowledged writes comes first, because it also breaks others.
func (n *results) broken() (broken []*guaranteeResult) {
	for _, w := range n.byGuarantee() {
		switch {
		case len(w.Failures) == 0:
		case w.DataLoss:
			broken = slices.Insert(broken, 0, w)
		default:
			broken = append(broken, w)
		}
	}
	return broken
}

// verdict returns an error if a guarantee was broken.
func (n *results) verdict() error {
	broken := n.broken()
	if len(broken) == 0 {
		return nil
	}
	more := ""
	if len(broken) > 1 {
		more = fmt.Sprintf(" (and %d more)", len(broken)-1)
	}
	return cli.Failedf("a guarantee is broken: %s%s", broken[0].Text, more)
}

// print writes the table of results.
func (n *results) print(out io.Writer) error {
	b := bufio.NewWriter(out)
	marks, all := map[string]int{}, n.byGuarantee()
	for _, w := range all {
		marks[w.Mark()]++
		fmt.Fprintf(b, "%s %7s  %s\n", w.Mark(), cli.Duration(w.Took), w.Text)
		for _, text := range w.Failures {
			fmt.Fprintf(b, "%s\n", indent(text))
		}
		if len(w.Skipped) > 0 {
			fmt.Fprintf(b, "%s\n", indent("not checked: "+strings.Join(w.Skipped, "; ")))
		}
	}
	ran := 0
	for _, r := range n.cases {
		if r.NotRun == "" {
			ran++
		}
	}
	fmt.Fprintf(b, "%d guarantees: %d kept, %d broken, %d not checked; %d cases", len(all), marks["✓"], marks["✗"], marks["–"], ran)
	if f := n.faults; f != nil {
		fmt.Fprintf(b, " and %s under faults: %d calls, %d events, faults: %s; seed %d", cli.Duration(f.WorkTime), f.Total(), f.Events, faultCounts(f), f.Seed)
	}
	fmt.Fprintf(b, "; %s\n", cli.Duration(n.took))
	return b.Flush()
}

func faultCounts(f *faults.Report) string {
	var parts []string
	for _, kind := range faults.Kinds() {
		if f.Faults[kind] > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", kind, f.Faults[kind]))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// indent formats a text to go below a line of the table: its first lines, without characters that would break a terminal.
func indent(text string) string {
	const maxLines, indent = 12, "             "
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) > maxLines {
		lines = append(lines[:maxLines], "…")
	}
	for i, line := range lines {
		lines[i] = indent + strings.Map(func(r rune) rune {
			if unicode.IsPrint(r) || r == '\t' {
				return r
			}
			return unicode.ReplacementChar
		}, line)
	}
	return strings.Join(lines, "\n")
}

// redactURL returns a store's URL without passwords.
func redactURL(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return "a store"
	}
	if u.User != nil {
		u.User = url.User(u.User.Username())
	}
	query := u.Query()
	for name, values := range query {
		for _, value := range values {
			if strings.Contains(name, "password") || strings.Contains(value, "://") && strings.Contains(value, "@") {
				query.Set(name, "…")
			}
		}
	}
	u.RawQuery = ""
	text := u.String()
	if len(query) > 0 {
		shown, err := url.QueryUnescape(query.Encode())
		if err != nil {
			return text
		}
		text += "?" + shown
	}
	return text
}
