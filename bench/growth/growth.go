// Package growth defines the format of the results of BenchmarkGrowth of package bench, and draws them.
package growth

import (
	"encoding/json"
	"fmt"
	"io"
)

// Growth contains the costs of operations at increasing sizes of a store.
type Growth struct {
	Backend string   `json:"backend"`         // display name: "SQLite"
	Raw     string   `json:"raw"`             // the raw side
	Notes   []string `json:"notes,omitempty"` // notes for the reader, a sentence each
	Series  []Series `json:"series"`
}

// Series is the cost of one operation at each size.
type Series struct {
	Operation string  `json:"what"` // "read"; "memory" is a series as well
	Unit      string  `json:"unit"` // "ns" or "bytes"
	Points    []Point `json:"points"`
}

// Point is the cost of an operation on both sides, in the unit of its series.
type Point struct {
	Resources int     `json:"resources"`
	Raw       float64 `json:"raw"`
	Ashlar    float64 `json:"ashlar"`
}

// Add appends a point to the series of an operation. It adds the series if there is none.
func (g *Growth) Add(operation, unit string, p Point) {
	for i := range g.Series {
		if g.Series[i].Operation == operation {
			g.Series[i].Points = append(g.Series[i].Points, p)
			return
		}
	}
	g.Series = append(g.Series, Series{Operation: operation, Unit: unit, Points: []Point{p}})
}

// Write writes g as JSON.
func (g *Growth) Write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(g)
}

// Read decodes the JSON that Write writes. It fails if a value cannot be drawn.
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

// check refuses values that cannot be drawn on logarithmic axes, as ratios to the first point.
func (s *Series) check() error {
	if s.Unit != "ns" && s.Unit != "bytes" {
		return fmt.Errorf("growth: %s: unit %q, expected ns or bytes", s.Operation, s.Unit)
	}
	last := 0
	for _, p := range s.Points {
		if p.Resources <= last {
			return fmt.Errorf("growth: %s: %d resources after %d: sizes must increase", s.Operation, p.Resources, last)
		}
		if p.Raw <= 0 || p.Ashlar <= 0 {
			return fmt.Errorf("growth: %s at %d resources: %g and %g must be greater than 0", s.Operation, p.Resources, p.Raw, p.Ashlar)
		}
		last = p.Resources
	}
	if last == 0 {
		return fmt.Errorf("growth: %s has no points", s.Operation)
	}
	return nil
}
