// Package growth holds what BenchmarkGrowth of package bench has measured, and draws it.
package growth

import (
	"encoding/json"
	"fmt"
	"io"
)

// Growth is how the cost of operations grows with a store.
type Growth struct {
	Backend string   `json:"backend"`         // as it is shown: "SQLite"
	Raw     string   `json:"raw"`             // what Ashlar is compared with
	Notes   []string `json:"notes,omitempty"` // what a reader has to know, a sentence each
	Series  []Series `json:"series"`
}

// Series is what one operation cost at each size.
type Series struct {
	What   string  `json:"what"` // "read"
	Unit   string  `json:"unit"` // "ns" or "bytes"
	Points []Point `json:"points"`
}

// Point is what an operation cost on either side, in the unit of its series.
type Point struct {
	Resources int     `json:"resources"`
	Raw       float64 `json:"raw"`
	Ashlar    float64 `json:"ashlar"`
}

// Add appends a point to the series of that name, and the series if there is none.
func (g *Growth) Add(what, unit string, p Point) {
	for i := range g.Series {
		if g.Series[i].What == what {
			g.Series[i].Points = append(g.Series[i].Points, p)
			return
		}
	}
	g.Series = append(g.Series, Series{What: what, Unit: unit, Points: []Point{p}})
}

// Write writes g as JSON.
func (g *Growth) Write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(g)
}

// Read reads what Write has written.
func Read(r io.Reader) (*Growth, error) {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	g := &Growth{}
	if err := d.Decode(g); err != nil {
		return nil, fmt.Errorf("growth: %w", err)
	}
	for _, s := range g.Series {
		if err := s.check(); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// check refuses what cannot be drawn on logarithmic axes, as ratios to the first point.
func (s *Series) check() error {
	if s.Unit != "ns" && s.Unit != "bytes" {
		return fmt.Errorf("growth: %s: the unit is to be ns or bytes, found %q", s.What, s.Unit)
	}
	last := 0
	for _, p := range s.Points {
		if p.Resources <= last {
			return fmt.Errorf("growth: %s: %d resources after %d", s.What, p.Resources, last)
		}
		if p.Raw <= 0 || p.Ashlar <= 0 {
			return fmt.Errorf("growth: %s at %d resources: %g and %g are to be more than 0", s.What, p.Resources, p.Raw, p.Ashlar)
		}
		last = p.Resources
	}
	if last == 0 {
		return fmt.Errorf("growth: %s has no points", s.What)
	}
	return nil
}
