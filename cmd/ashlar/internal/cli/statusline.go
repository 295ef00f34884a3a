package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// StatusLine shows progress: on a terminal as one line that it rewrites, otherwise as an occasional line. It is not safe for concurrent
// use.
type StatusLine struct {
	out       io.Writer
	terminal  bool
	lastPrint time.Time
	width     int // of the text on the terminal's line
}

// plainEvery is the time between two lines if the output is not a terminal.
const plainEvery = 10 * time.Second

// NewStatusLine returns a status line that writes to out.
func NewStatusLine(out io.Writer) *StatusLine {
	s := &StatusLine{out: out}
	if f, ok := out.(*os.File); ok {
		s.terminal = term.IsTerminal(int(f.Fd()))
	}
	return s
}

// Show shows a text. If news is set, the text is written even shortly after the previous line.
func (s *StatusLine) Show(text string, news bool) {
	switch {
	case s.terminal:
		pad := strings.Repeat(" ", max(0, s.width-len(text)))
		s.width = len(text)
		_, _ = fmt.Fprintf(s.out, "\r%s%s", text, pad)
	case news || time.Since(s.lastPrint) >= plainEvery:
		s.lastPrint = time.Now()
		_, _ = fmt.Fprintln(s.out, text)
	}
}

// Wait suppresses the first line for plainEvery if the output is not a terminal.
func (s *StatusLine) Wait() { s.lastPrint = time.Now() }

// Print prints a permanent line.
func (s *StatusLine) Print(text string) {
	s.Clear()
	_, _ = fmt.Fprintln(s.out, text)
}

// Clear clears the terminal's line.
func (s *StatusLine) Clear() {
	if s.width > 0 {
		_, _ = fmt.Fprintf(s.out, "\r%s\r", strings.Repeat(" ", s.width))
		s.width = 0
	}
}

// End keeps the last text on the terminal.
func (s *StatusLine) End() {
	if s.width > 0 {
		_, _ = fmt.Fprintln(s.out)
		s.width = 0
	}
}

// Duration formats d to a tenth of a second below ten seconds, and to a second above.
func Duration(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}
