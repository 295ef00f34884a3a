package growth

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
)

// The picture: panels side by side, one for each series, and a legend in the last cell.
const (
	columns     = 4
	panelWidth  = 270
	panelHeight = 220
	headHeight  = 64
	plotLeft    = 44 // position of the axes in a panel
	plotRight   = 250
	plotTop     = 46
	plotBottom  = 190

	ink, faint           = "#24292f", "#d0d7de"
	ashlarColor          = "#0969da"
	rawColor             = "#bc4c00"
	target               = 1.5
	lowest, leastHighest = 0.5, 3.0
)

// SVG draws g: a panel for each series, with the cost on each side relative to that side's smallest store, on logarithmic axes that
// all panels share. The same g results in the same bytes.
func (g *Growth) SVG(w io.Writer) error {
	d := &drawing{low: lowest, high: leastHighest, minCount: math.MaxInt}
	for i := range g.Series {
		if err := g.Series[i].check(); err != nil {
			return err
		}
		d.include(&g.Series[i])
	}
	rows := (len(g.Series) + columns) / columns
	width, height := columns*panelWidth, headHeight+rows*panelHeight
	d.printf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11" fill="%s">`+"\n",
		width, height, width, height, ink)
	title := fmt.Sprintf("%s: how costs grow with the store", g.Backend)
	d.printf("<title>%s</title>\n", escape(title))
	d.printf(`<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	d.printf(`<text x="16" y="28" font-size="18" font-weight="bold">%s</text>`+"\n", escape(title))
	d.printf(`<text x="16" y="48">in relation to %s resources, where each side is 1; less is better</text>`+"\n", count(d.minCount))
	for i := range g.Series {
		d.panel(&g.Series[i], i%columns*panelWidth, headHeight+i/columns*panelHeight)
	}
	i := len(g.Series)
	d.legend(g, i%columns*panelWidth, headHeight+i/columns*panelHeight)
	d.printf("</svg>\n")
	_, err := w.Write(d.out.Bytes())
	return err
}

// drawing is a picture in progress, with the bounds of its axes.
type drawing struct {
	out                bytes.Buffer
	low, high          float64 // ratios
	minCount, maxCount int     // resources
}

func (d *drawing) printf(format string, args ...any) { fmt.Fprintf(&d.out, format, args...) }

// include widens the axes for a series.
func (d *drawing) include(s *Series) {
	first := s.Points[0]
	d.minCount = min(d.minCount, first.Resources)
	for _, p := range s.Points {
		d.maxCount = max(d.maxCount, p.Resources)
		for _, ratio := range []float64{p.Raw / first.Raw, p.Ashlar / first.Ashlar} {
			d.low, d.high = min(d.low, ratio*0.9), max(d.high, ratio*1.15)
		}
	}
}

func (d *drawing) x(resources int) float64 {
	if d.maxCount == d.minCount {
		return (plotLeft + plotRight) / 2
	}
	at := math.Log(float64(resources)/float64(d.minCount)) / math.Log(float64(d.maxCount)/float64(d.minCount))
	return plotLeft + at*(plotRight-plotLeft)
}

func (d *drawing) y(ratio float64) float64 {
	at := math.Log(ratio/d.low) / math.Log(d.high/d.low)
	return plotBottom - at*(plotBottom-plotTop)
}

func (d *drawing) panel(s *Series, left, top int) {
	first, last := s.Points[0], s.Points[len(s.Points)-1]
	d.printf(`<g transform="translate(%d %d)">`+"\n", left, top)
	d.printf(`<text x="%d" y="14" font-size="13" font-weight="bold">%s</text>`+"\n", plotLeft, escape(s.Operation))
	d.printf(`<text x="%d" y="28" fill="%s">Ashlar %s → %s</text>`+"\n", plotLeft, ashlarColor, s.amount(first.Ashlar), s.amount(last.Ashlar))
	d.printf(`<text x="%d" y="41" fill="%s">raw %s → %s</text>`+"\n", plotLeft, rawColor, s.amount(first.Raw), s.amount(last.Raw))
	for _, tick := range d.ticks() {
		d.printf(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="%s"/>`, plotLeft, d.y(tick), plotRight, d.y(tick), faint)
		d.printf(`<text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", plotLeft-5, d.y(tick)+4, number(tick))
	}
	d.printf(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="%s" stroke-dasharray="2 3"/>`+"\n",
		plotLeft, d.y(target), plotRight, d.y(target), ink)
	for _, p := range s.Points {
		d.printf(`<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", d.x(p.Resources), plotBottom+15, count(p.Resources))
	}
	d.line(s, rawColor, "6 3", func(p Point) float64 { return p.Raw / first.Raw })
	d.line(s, ashlarColor, "none", func(p Point) float64 { return p.Ashlar / first.Ashlar })
	d.printf("</g>\n")
}

// line draws one side of a series.
func (d *drawing) line(s *Series, color, dashes string, ratio func(Point) float64) {
	var points []string
	for _, p := range s.Points {
		points = append(points, fmt.Sprintf("%.1f,%.1f", d.x(p.Resources), d.y(ratio(p))))
	}
	d.printf(`<polyline points="%s" fill="none" stroke="%s" stroke-width="2" stroke-dasharray="%s"/>`+"\n",
		strings.Join(points, " "), color, dashes)
	for _, p := range s.Points {
		d.printf(`<circle cx="%.1f" cy="%.1f" r="3" fill="%s"><title>%s resources: %.2f</title></circle>`+"\n",
			d.x(p.Resources), d.y(ratio(p)), color, count(p.Resources), ratio(p))
	}
}

// ticks returns the marks of the axis: 1, and 2, 5 and 10 of each power within the bounds.
func (d *drawing) ticks() (ticks []float64) {
	steps := []float64{1, 2, 5}
	if d.high/d.low > 200 {
		steps = []float64{1} // more marks would overlap
	}
	for power := math.Pow(10, math.Floor(math.Log10(d.low))); power < d.high; power *= 10 {
		for _, step := range steps {
			if at := power * step; at >= d.low && at <= d.high {
				ticks = append(ticks, at)
			}
		}
	}
	return ticks
}

func (d *drawing) legend(g *Growth, left, top int) {
	d.printf(`<g transform="translate(%d %d)">`+"\n", left, top)
	for i, l := range []struct{ text, color, dashes string }{
		{"Ashlar", ashlarColor, "none"}, {"raw: " + g.Raw, rawColor, "6 3"}, {"target: 1.5 times", ink, "2 3"},
	} {
		y := 14 + 18*i
		d.printf(`<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s" stroke-width="2" stroke-dasharray="%s"/>`,
			plotLeft-28, y-4, plotLeft-4, y-4, l.color, l.dashes)
		d.printf(`<text x="%d" y="%d">%s</text>`+"\n", plotLeft+2, y, escape(l.text))
	}
	y := 14 + 18*3 + 6
	for _, note := range g.Notes {
		for _, line := range wrap(note, 40) {
			d.printf(`<text x="%d" y="%d">%s</text>`+"\n", plotLeft-28, y, escape(line))
			y += 14
		}
		y += 4
	}
	d.printf("</g>\n")
}

// amount formats a value in the unit of the series, with its significant digits.
func (s *Series) amount(v float64) string {
	steps := []struct {
		from float64
		unit string
	}{{1e9, "s"}, {1e6, "ms"}, {1e3, "µs"}, {1, "ns"}}
	if s.Unit == "bytes" {
		steps = steps[1:]
		steps[0].unit, steps[1].unit, steps[2].unit = "MB", "KB", "B"
	}
	for _, step := range steps {
		if v >= step.from {
			return number(v/step.from) + " " + step.unit
		}
	}
	return number(v) + " " + steps[len(steps)-1].unit
}

// number formats small values with two digits, and others as whole numbers.
func number(v float64) string {
	if v >= 10 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2g", v)
}

// count formats a number of resources for an axis.
func count(n int) string {
	switch {
	case n >= 1_000_000 && n%1_000_000 == 0:
		return fmt.Sprintf("%dM", n/1_000_000)
	case n >= 1000 && n%1000 == 0:
		return fmt.Sprintf("%dk", n/1000)
	}
	return fmt.Sprint(n)
}

// wrap splits a text into lines of at most width bytes, between words.
func wrap(text string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case len(line)+1+len(word) > width:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a strings.Builder never fails
	return b.String()
}
