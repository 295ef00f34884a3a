package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// StatusLine says how far something is: a line that changes on a terminal, else a line now and then. It is not safe for use by
// several goroutines.
type StatusLine struct {
	out       io.Writer
	terminal  bool
	printedAt time.Time
	width     int // of what is on the terminal's line
}

// plainEvery is how often a line is written where there is no terminal.
const plainEvery = 10 * time.Second

func NewStatusLine(out io.Writer) *StatusLine {
	s := &StatusLine{out: out}
	if f, ok := out.(*os.File); ok {
		s.terminal = term.IsTerminal(int(f.Fd()))
	}
	return s
}

// Show shows a text. News is written also where the last line was written a moment ago.
func (s *StatusLine) Show(text string, news bool) {
	switch {
	case s.terminal:
		pad := strings.Repeat(" ", max(0, s.width-len(text)))
		s.width = len(text)
		_, _ = fmt.Fprintf(s.out, "\r%s%s", text, pad)
	case news || time.Since(s.printedAt) >= plainEvery:
		s.printedAt = time.Now()
		_, _ = fmt.Fprintln(s.out, text)
	}
}

// Wait suppresses the first line for plainEvery where there is no terminal.
func (s *StatusLine) Wait() { s.printedAt = time.Now() }

// Print prints a line that stays.
func (s *StatusLine) Print(text string) {
	s.Clear()
	_, _ = fmt.Fprintln(s.out, text)
}

// Clear makes room on the terminal's line.
func (s *StatusLine) Clear() {
	if s.width > 0 {
		_, _ = fmt.Fprintf(s.out, "\r%s\r", strings.Repeat(" ", s.width))
		s.width = 0
	}
}

// End leaves the last text on the terminal.
func (s *StatusLine) End() {
	if s.width > 0 {
		_, _ = fmt.Fprintln(s.out)
		s.width = 0
	}
}

func Duration(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}
