package top

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Print writes a picture of a tally to out at every interval until ctx ends, for output that is not a terminal. limit bounds the number of
// pictures; 0 means no limit.
func Print(ctx context.Context, out io.Writer, t *Tally, interval time.Duration, limit int) error {
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	var last time.Time
	for shown := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticks.C:
			p := t.Picture(now)
			if _, err := io.WriteString(out, lines(p, last)); err != nil {
				return err
			}
			last = now
			if shown++; shown == limit {
				return nil
			}
		}
	}
}

// lines returns a picture as text, with the changes after a time.
func lines(p *Picture, after time.Time) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s  %s\n", p.At.Format(time.RFC3339), summary(p))
	table := tabwriter.NewWriter(&s, 0, 8, 2, ' ', 0)
	for i := range p.Rows {
		cells := p.Rows[i].cells()
		if i == 0 {
			fmt.Fprintln(table, "  "+strings.Join(columns[:], "\t"))
		}
		fmt.Fprintln(table, "  "+strings.Join(cells[:], "\t"))
	}
	_ = table.Flush() // a strings.Builder never fails
	for i := len(p.Changes) - 1; i >= 0; i-- {
		if c := &p.Changes[i]; c.At.After(after) {
			fmt.Fprintln(&s, "  "+c.line())
		}
	}
	return s.String()
}
