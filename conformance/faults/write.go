package faults

import (
	"cmp"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"slices"

	"github.com/anishathalye/porcupine"
)

// write writes the history of a round in which something was violated, and porcupine's pictures of what it could not explain.
func (r *run) write(e *evidence) {
	if r.o.Directory == "" {
		return
	}
	if err := e.write(r.o.Directory); err != nil {
		r.o.Log("faults: the history could not be written: %v", err)
	}
}

func (e *evidence) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	name := filepath.Join(dir, fmt.Sprintf("faults-%d-round-%d.html", e.run.o.Seed, e.round.number))
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	slices.SortStableFunc(e.calls, func(a, b *call) int { return cmp.Compare(a.begin, b.begin) })
	err = page.Execute(f, map[string]any{
		"Seed": e.run.o.Seed, "Round": e.round.number, "Violations": e.run.report.Violations, "Calls": e.calls, "Faults": e.episodes(),
		"Follower": e.witness.follower.name, "Events": e.witness.events,
	})
	if err = cmp.Or(err, f.Close()); err != nil {
		return err
	}
	e.run.report.Files = append(e.run.report.Files, name)
	for i, p := range e.pictures[:min(3, len(e.pictures))] {
		name := filepath.Join(dir, fmt.Sprintf("faults-%d-round-%d-%s-%d.html", e.run.o.Seed, e.round.number, p.key, i))
		if err := porcupine.VisualizePath(p.model, p.info, name); err != nil {
			return err
		}
		e.run.report.Files = append(e.run.report.Files, name)
	}
	return nil
}

func (e *evidence) episodes() (lines []string) {
	slices.SortFunc(e.faults, func(a, b episode) int { return cmp.Compare(a.begin, b.begin) })
	for _, f := range e.faults {
		lines = append(lines, fmt.Sprintf("[%s to %s] %s", moment(f.begin), moment(f.end), f.kind))
	}
	return lines
}

var page = template.Must(template.New("history").Parse(`<!doctype html>
<meta charset="utf-8"><title>faults, seed {{.Seed}}</title>
<style>body { font: 14px sans-serif } pre { white-space: pre-wrap } .bad { color: #a00 }</style>
<h1>Seed {{.Seed}}, round {{.Round}}</h1>
{{range .Violations}}<pre class="bad">{{.}}</pre>{{end}}
<h2>Faults</h2><pre>{{range .Faults}}{{.}}
{{end}}</pre>
<h2>What {{.Follower}} saw</h2><pre>{{range .Events}}{{.}}
{{end}}</pre>
<h2>Calls</h2><pre>{{range .Calls}}{{.}}
{{end}}</pre>
`))
