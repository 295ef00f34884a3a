package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// statusLine says how far something is: a line that changes on a terminal, else a line now and then. It is not safe for use by
// several goroutines.
type statusLine struct {
	out      io.Writer
	terminal bool
	shown    time.Time
	width    int // of what is on the terminal's line
}

// plainEvery is how often a line is written where there is no terminal.
const plainEvery = 10 * time.Second

func newStatusLine(out io.Writer) *statusLine {
	s := &statusLine{out: out}
	if f, ok := out.(*os.File); ok {
		s.terminal = term.IsTerminal(int(f.Fd()))
	}
	return s
}

// show shows a text. News is written also where the last line was written a moment ago.
func (s *statusLine) show(text string, news bool) {
	switch {
	case s.terminal:
		pad := strings.Repeat(" ", max(0, s.width-len(text)))
		s.width = len(text)
		_, _ = fmt.Fprintf(s.out, "\r%s%s", text, pad)
	case news || time.Since(s.shown) >= plainEvery:
		s.shown = time.Now()
		_, _ = fmt.Fprintln(s.out, text)
	}
}

// clear makes room on the terminal's line.
func (s *statusLine) clear() {
	if s.width > 0 {
		_, _ = fmt.Fprintf(s.out, "\r%s\r", strings.Repeat(" ", s.width))
		s.width = 0
	}
}

// end leaves the last text on the terminal.
func (s *statusLine) end() {
	if s.width > 0 {
		_, _ = fmt.Fprintln(s.out)
		s.width = 0
	}
}
