package top

import (
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
)

// Screen shows a tally on a terminal. It is a tea.Model: run it with tea.NewProgram.
type Screen struct {
	// Store is the name of the store, for the first line.
	Store string

	tally         *Tally
	interval      time.Duration
	picture       *Picture
	width, height int
	by            Order
	reverse       bool
	paused, help  bool
	filter        string
	typing        bool
}

// NewScreen returns a screen that shows a new picture at every interval.
func NewScreen(store string, t *Tally, interval time.Duration) *Screen {
	return &Screen{Store: store, tally: t, interval: interval, picture: t.Picture(time.Now()), width: 80, height: 24}
}

// tick makes the screen show a new picture.
type tick time.Time

func (s *Screen) next() tea.Cmd {
	return tea.Tick(s.interval, func(now time.Time) tea.Msg { return tick(now) })
}

// Init implements tea.Model.
func (s *Screen) Init() tea.Cmd { return s.next() }

// Update implements tea.Model.
func (s *Screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tick:
		if !s.paused {
			s.picture = s.tally.Picture(time.Time(msg))
		}
		return s, s.next()
	case tea.WindowSizeMsg:
		s.width, s.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		if s.typing {
			s.editFilter(msg)
			return s, nil
		}
		return s, s.handleKey(msg.String())
	}
	return s, nil
}

// handleKey handles a key press.
func (s *Screen) handleKey(key string) tea.Cmd {
	switch key {
	case "q", "ctrl+c":
		return tea.Quit
	case "p", "space":
		s.paused = !s.paused
	case "s":
		s.by = (s.by + 1) % orders
	case "r":
		s.reverse = !s.reverse
	case "?", "h":
		s.help = !s.help
	case "/":
		s.typing = true
	case "esc":
		s.filter, s.help = "", false
	}
	return nil
}

// editFilter handles a key press while the filter is edited.
func (s *Screen) editFilter(msg tea.KeyPressMsg) {
	switch msg.String() {
	case "enter":
		s.typing = false
	case "esc", "ctrl+c":
		s.typing, s.filter = false, ""
	case "backspace":
		if runes := []rune(s.filter); len(runes) > 0 {
			s.filter = string(runes[:len(runes)-1])
		}
	default:
		s.filter += msg.Text
	}
}

// View implements tea.Model.
func (s *Screen) View() tea.View {
	v := tea.NewView(strings.Join(s.lines(), "\n"))
	v.AltScreen = true
	v.WindowTitle = "ashlar top"
	return v
}

const keyHelp = "q quit   p pause   s sort   r reverse   / filter   ? help"

var helpText = []string{
	"", "  q, Ctrl-C   quit",
	"  p, space    pause, and resume",
	"  s           sort by type, resources, bytes or changes",
	"  r           reverse the order",
	"  /           show only types and names that contain a text; Enter keeps it, Esc drops it",
	"  ?           show this, or the table",
	"", "  Rates are means over the last ten seconds. \"Behind by at most\" is the time that the watch last took to prove that it",
	"  was up to date.",
}

// lines returns the lines of the screen, from the top.
func (s *Screen) lines() []string {
	out := []string{bold("ashlar top  " + printable(s.Store)), summary(s.picture)}
	if s.help {
		out = append(out, helpText...)
	} else {
		out = append(out, s.table()...)
	}
	room := max(s.height-1, 1)
	out = out[:min(len(out), room)]
	for len(out) < room {
		out = append(out, "")
	}
	out = append(out, s.status())
	for i := range out {
		out[i] = ansi.Truncate(out[i], s.width, "…")
	}
	return out
}

// status returns the last line.
func (s *Screen) status() string {
	switch {
	case s.typing:
		return "filter: " + s.filter + "_"
	case s.paused:
		return bold("PAUSED at "+s.picture.At.Format(time.TimeOnly)) + "   p resumes"
	}
	state := "by " + s.by.String()
	if s.reverse {
		state += ", reversed"
	}
	if s.filter != "" {
		state += ", with " + printable(s.filter)
	}
	return keyHelp + "   (" + state + ")"
}

// table returns the types, followed by the newest changes.
func (s *Screen) table() []string {
	p := *s.picture
	p.Rows = append([]Row(nil), p.Rows...)
	p.sort(s.by, s.reverse)
	var rows [][5]string
	for i := range p.Rows {
		if s.matches(name(p.Rows[i].Type)) {
			rows = append(rows, p.Rows[i].cells())
		}
	}
	// The changes get at least a third of the screen, plus the space that the types do not need.
	room := max(s.height-6, 2)
	maxRows := max(room*2/3, 1)
	hidden := max(len(rows)-maxRows, 0)
	rows = rows[:len(rows)-hidden]
	out := []string{"", bold(alignRow(columns, widths(rows)))}
	for _, row := range rows {
		out = append(out, alignRow(row, widths(rows)))
	}
	if hidden > 0 {
		out = append(out, "… and "+plural(hidden, "more type"))
	}
	out = append(out, "", bold("NEWEST CHANGES"))
	for i := range p.Changes {
		c := &p.Changes[i]
		if s.matches(c.ID.GetType().GetGroup()+"/"+c.ID.GetType().GetKind()) || s.matches(c.ID.GetName()) {
			out = append(out, c.line())
		}
	}
	return out
}

func (s *Screen) matches(text string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(s.filter))
}

// widths returns the widths of the columns.
func widths(rows [][5]string) (w [5]int) {
	for i, c := range columns {
		w[i] = len(c)
	}
	for _, row := range rows {
		for i, cell := range row {
			w[i] = max(w[i], ansi.StringWidth(cell))
		}
	}
	return w
}

// alignRow formats a row, with names aligned to the left and numbers to the right.
func alignRow(row [5]string, w [5]int) string {
	var s strings.Builder
	for i, cell := range row {
		fill := strings.Repeat(" ", max(w[i]-ansi.StringWidth(cell), 0))
		if i == 0 {
			s.WriteString(cell + fill)
		} else {
			s.WriteString("  " + fill + cell)
		}
	}
	return s.String()
}

func bold(text string) string { return "\x1b[1m" + text + "\x1b[m" }
