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
			"phase": p.Phase, "listed": p.Listed, "total": p.Total, "created": p.Done.Created, "replaced": p.Done.Replaced,
			"skipped": p.Done.Skipped, "deleted": p.Done.Deleted, "applied": p.Done.Applied, "bytes": p.Done.Bytes, "rate": p.Rate,
			"etaSeconds": p.Left.Seconds(), "lagSeconds": p.Lag.Seconds(), "elapsedSeconds": p.Elapsed.Seconds(),
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
		return fmt.Sprintf("follow   %d changes applied, %.0f/s, lag %s", p.Done.Applied, p.Rate, lag)
	case migrate.Complete:
		return "complete"
	}
	bar := ""
	of := ""
	if p.Total > 0 {
		const width = 24
		full := int(min(p.Listed, p.Total) * width / p.Total)
		bar = "[" + strings.Repeat("#", full) + strings.Repeat(".", width-full) + "] "
		of = fmt.Sprintf(" of %d", p.Total)
	}
	eta := ""
	if p.Left > 0 {
		eta = ", " + cli.Duration(p.Left) + " left"
	}
	return fmt.Sprintf("%-8s %s%d%s, %.0f/s%s", p.Phase, bar, p.Listed, of, p.Rate, eta)
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
func (m *reporter) writeJSON(object map[string]any) {
	text, err := json.Marshal(object)
	if err == nil {
		_, _ = fmt.Fprintf(m.out, "%s\n", text)
	}
}

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
			"result": "ok", "phase": r.Phase, "resumed": r.Resumed, "already": r.Already, "created": r.Done.Created,
			"replaced": r.Done.Replaced, "skipped": r.Done.Skipped, "deleted": r.Done.Deleted, "applied": r.Done.Applied,
			"elapsedSeconds": r.Elapsed.Seconds(), "closedSeconds": r.Fenced.Seconds(),
		}
		if r.Report != nil {
			object["resources"], object["digest"] = r.Report.Target, r.Report.TargetDigest
		}
		m.writeJSON(object)
		return nil
	}
	if r.Already {
		_, err := fmt.Fprintf(m.out, "already complete: %s has moved to %s\n", o.From, o.To)
		return err
	}
	_, err := fmt.Fprintf(m.out, "created %d, replaced %d, deleted %d, found %d equal, followed %d changes, in %s\nverified: %v\n",
		r.Done.Created, r.Done.Replaced, r.Done.Deleted, r.Done.Skipped, r.Done.Applied, cli.Duration(r.Elapsed), r.Report)
	if err == nil && r.Phase == migrate.Complete {
		_, err = fmt.Fprintf(m.out, "complete: %s accepts no more writes (closed %s ago); use %s\n", o.From, cli.Duration(r.Fenced), o.To)
	}
	return err
}
