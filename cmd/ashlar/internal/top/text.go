package top

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ashlar-dev/storage/resourcepb"
)

// summary returns a picture as one line.
func summary(p *Picture) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s, %s, %s, %s writes/s, %s deletes/s", plural(len(p.Rows), "type"), plural(p.Total.Resources, "resource"),
		size(p.Total.Bytes), rate(p.Total.Writes), rate(p.Total.Deletes))
	switch {
	case !p.Complete:
		s.WriteString(", still counting")
	case p.LagKnown:
		s.WriteString(", behind by at most " + lag(p.Lag))
	}
	if p.Note != "" {
		s.WriteString("; " + printable(p.Note))
	}
	return s.String()
}

// cells returns the columns of a row.
func (r *Row) cells() [5]string {
	return [5]string{printable(name(r.Type)), number(r.Resources), size(r.Bytes), rate(r.Writes), rate(r.Deletes)}
}

var columns = [5]string{"TYPE", "RESOURCES", "SIZE", "WRITES/S", "DELETES/S"}

// line returns a change as one line.
func (c *Change) line() string {
	id := c.ID
	return fmt.Sprintf("%s  %-6s  %s  %s  %s", c.At.Format(time.TimeOnly), c.Action, printable(id.GetType().GetGroup()+"/"+id.GetType().GetKind()),
		tenancyText(id.GetTenancy()), printable(id.GetName()))
}

func tenancyText(t *resourcepb.Tenancy) string {
	if t.GetPartition() == "" && t.GetNamespace() == "" {
		return "-"
	}
	return printable(t.GetPartition() + "/" + t.GetNamespace())
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return number(n) + " " + noun + "s"
}

// number formats a number with thousands separators.
func number(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// size formats a size with a decimal unit.
func size(n int64) string {
	const units = "kMGTPE"
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n)/1000, 0
	for value >= 999.95 && unit < len(units)-1 {
		value /= 1000
		unit++
	}
	return fmt.Sprintf("%.1f %cB", value, units[unit])
}

func rate(perSecond float64) string {
	if perSecond >= 100 {
		return number(int(perSecond + 0.5))
	}
	return fmt.Sprintf("%.1f", perSecond)
}

func lag(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return "1 ms"
	case d < 10*time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return d.Round(time.Second).String()
}

// printable returns s, in quotes if it would break a terminal.
func printable(s string) string {
	if s == "" || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}
