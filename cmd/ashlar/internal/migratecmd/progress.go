package migratecmd

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/migrate"
)

// reporter shows the progress of a migration: as a line that it rewrites on a terminal, as an occasional line elsewhere, or as JSON.
type reporter struct {
	out   io.Writer
	json  bool
	mu    sync.Mutex
	phase migrate.Phase
	line  *cli.StatusLine // unless json is set
}

func newReporter(a *cli.App, asJSON bool) *reporter {
	return &reporter{out: a.Out, json: asJSON, line: cli.NewStatusLine(a.Out)}
}

func (m *reporter) progress(p migrate.Progress) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.Warning != nil {
		m.print(fmt.Sprintf("retrying: %s", cli.OneLine(p.Warning)), map[string]any{"warning": cli.OneLine(p.Warning)})
	}
	switch {
	case m.json:
		object := map[string]any{
			"phase": p.Phase, "listed": p.Count, "total": p.Total, "created": p.Work.Creations, "replaced": p.Work.Replacements,
			"skipped": p.Work.Unchanged, "deleted": p.Work.Deletions, "applied": p.Work.Events, "bytes": p.Work.Bytes, "rate": p.Rate,
			"etaSeconds": p.Remaining.Seconds(), "lagSeconds": p.Lag.Seconds(), "elapsedSeconds": p.Duration.Seconds(),
		}
		if p.Lag < 0 {
			object["lagSeconds"] = nil // the lag is not known yet
		}
		m.writeJSON(object)
	default:
		m.line.Show(describeProgress(p), p.Phase != m.phase)
	}
	m.phase = p.Phase
}

// describeProgress returns the progress as one line.
func describeProgress(p migrate.Progress) string {
	switch p.Phase {
	case migrate.Following:
		lag := "not known yet"
		if p.Lag >= 0 {
			lag = cli.Duration(p.Lag)
		}
		return fmt.Sprintf("follow   %d changes applied, %.0f/s, lag %s", p.Work.Events, p.Rate, lag)
	case migrate.Complete:
		return "complete"
	}
	bar := ""
	of := ""
	if p.Total > 0 {
		const width = 24
		full := int(min(p.Count, p.Total) * width / p.Total)
		bar = "[" + strings.Repeat("#", full) + strings.Repeat(".", width-full) + "] "
		of = fmt.Sprintf(" of %d", p.Total)
	}
	eta := ""
	if p.Remaining > 0 {
		eta = ", " + cli.Duration(p.Remaining) + " left"
	}
	return fmt.Sprintf("%-8s %s%d%s, %.0f/s%s", p.Phase, bar, p.Count, of, p.Rate, eta)
}

// note prints a message for the operator.
func (m *reporter) note(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.print(text, map[string]any{"note": text})
}

func (m *reporter) print(text string, object map[string]any) {
	if m.json {
		m.writeJSON(object)
		return
	}
	m.line.Clear()
	_, _ = fmt.Fprintln(m.out, text)
}

// writeJSON writes one line of JSON.
func (m *reporter) writeJSON(object map[string]any) { _ = jsonLine(m.out, object) }

// end keeps the last state on the terminal.
func (m *reporter) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.line.End()
}

// result prints the result of a migration.
func (m *reporter) result(r *migrate.Result, o *migrate.Options) error {
	if m.json {
		object := map[string]any{
			"result": "ok", "phase": r.Phase, "resumed": r.IsResumed, "already": r.WasComplete, "created": r.Work.Creations,
			"replaced": r.Work.Replacements, "skipped": r.Work.Unchanged, "deleted": r.Work.Deletions, "applied": r.Work.Events,
			"elapsedSeconds": r.Duration.Seconds(), "closedSeconds": r.FenceTime.Seconds(),
		}
		if r.Report != nil {
			object["resources"], object["digest"] = r.Report.Target, r.Report.TargetDigest
		}
		m.writeJSON(object)
		return nil
	}
	if r.WasComplete {
		_, err := fmt.Fprintf(m.out, "already complete: %s has moved to %s\n", o.From, o.To)
		return err
	}
	if r.Report == nil { // only the target remained to be opened
		_, err := fmt.Fprintf(m.out, "complete: use %s\n", o.To)
		return err
	}
	_, err := fmt.Fprintf(m.out, "created %d, replaced %d, deleted %d, found %d equal, followed %d changes, in %s\nverified: %v\n",
		r.Work.Creations, r.Work.Replacements, r.Work.Deletions, r.Work.Unchanged, r.Work.Events, cli.Duration(r.Duration), r.Report)
	if err == nil && r.Phase == migrate.Complete {
		_, err = fmt.Fprintf(m.out, "complete: %s accepts no more writes (closed %s ago); use %s\n", o.From, cli.Duration(r.FenceTime), o.To)
	}
	return err
}

func jsonLine(out io.Writer, object map[string]any) error {
	text, err := json.Marshal(object)
	if err == nil {
		_, err = fmt.Fprintf(out, "%s\n", text)
	}
	return err
}
