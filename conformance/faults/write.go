package faults

import (
	"cmp"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// writeRound writes the history of a round with a violation, and porcupine's pictures of unexplained windows.
func writeRound(r *run, e *evidence) {
	if r.o.Directory == "" {
		return
	}
	if err := writeEvidence(e, r.o.Directory); err != nil {
		r.o.Log("faults: the history could not be written: %v", err)
	}
}

func writeEvidence(e *evidence, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	base := filepath.Join(dir, fmt.Sprintf("faults-%d-round-%d", e.run.o.Seed, e.round.number))
	report, pictures := e.run.report, []string(nil)
	report.Files = append(report.Files, base+".html")
	for i, p := range e.pictures[:min(3, len(e.pictures))] {
		name := fmt.Sprintf("%s-%s-%d.html", base, p.key, i)
		if err := porcupine.VisualizePath(p.model, p.info, name); err != nil {
			return err
		}
		report.Files, pictures = append(report.Files, name), append(pictures, filepath.Base(name))
	}
	var summary strings.Builder
	report.summary(&summary)
	f, err := os.Create(base + ".html")
	if err != nil {
		return err
	}
	slices.SortStableFunc(e.calls, func(a, b *call) int { return cmp.Compare(a.begin, b.begin) })
	err = page.Execute(f, map[string]any{
		"Seed": e.run.o.Seed, "Round": e.round.number, "Summary": summary.String(), "Violations": report.Violations, "Pictures": pictures,
		"Calls": e.calls, "Faults": episodeLines(e), "Follower": e.witness.follower, "Events": e.witness.events,
	})
	return cmp.Or(err, f.Close())
}

func episodeLines(e *evidence) (lines []string) {
	slices.SortFunc(e.faults, func(a, b episode) int { return cmp.Compare(a.begin, b.begin) })
	for _, f := range e.faults {
		lines = append(lines, fmt.Sprintf("[%s to %s] %s", formatTime(f.begin), formatTime(f.end), f.kind))
	}
	return lines
}

var page = template.Must(template.New("history").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Faults: seed {{.Seed}}, round {{.Round}}</title>
<style>
body { font: 15px/1.4 sans-serif; margin: 2em; color: #222 }
pre { font: 13px/1.5 monospace; white-space: pre-wrap; overflow-wrap: anywhere; margin: .5em 0 }
section { border-left: 4px solid #b00; padding: .2em 1em; margin: 1em 0; background: #fff6f6 }
section h3 { margin: .3em 0; color: #900 }
summary { cursor: pointer; font-weight: bold; margin: 1em 0 }
ol { font: 13px/1.5 monospace } li { overflow-wrap: anywhere } li:nth-child(odd) { background: #f5f5f5 }
</style>
<h1>Seed {{.Seed}}, round {{.Round}}</h1>
<pre>{{.Summary}}</pre>
<p>Times are since the start of the run. Repeat the run with this seed; it gives the same faults and attempts as far as the database allows.</p>
<h2>Broken promises</h2>
{{range .Violations}}<section><h3>{{.Check}}</h3><pre>{{.Text}}</pre></section>
{{end}}{{with .Pictures}}<p>The search for an order of the calls:</p><ul>{{range .}}<li><a href="{{.}}">{{.}}</a></li>{{end}}</ul>
{{end}}<h2>Faults of this round</h2>
<ol>{{range .Faults}}<li>{{.}}</li>
{{end}}</ol>
<details><summary>Events of {{.Follower}}: {{len .Events}}</summary><ol>{{range .Events}}<li>{{.}}</li>
{{end}}</ol></details>
<details><summary>Calls: {{len .Calls}}</summary><ol>{{range .Calls}}<li>{{.}}</li>
{{end}}</ol></details>
`))
