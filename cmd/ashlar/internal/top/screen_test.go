package top

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"
)

// press presses some keys and returns the screen's text.
func (s *Screen) press(keys ...string) string {
	for _, k := range keys {
		msg := tea.KeyPressMsg{Code: []rune(k)[0], Text: k}
		switch k {
		case "enter":
			msg = tea.KeyPressMsg{Code: tea.KeyEnter}
		case "esc":
			msg = tea.KeyPressMsg{Code: tea.KeyEscape}
		case "backspace":
			msg = tea.KeyPressMsg{Code: tea.KeyBackspace}
		}
		s.Update(msg)
	}
	return ansi.Strip(s.View().Content)
}

func sampleTally() *Tally {
	t := NewTally(noon)
	for i := range 1234 {
		t.Count(upsert(resource("Album", fmt.Sprint(i), 100)), noon)
	}
	t.Count(endOfSnapshot, noon)
	t.Count(upsert(resource("Studio", "abbey\x1b[2J", 10)), noon)
	t.SetLag(3 * time.Millisecond)
	return t
}

func TestScreen(t *testing.T) {
	t.Parallel()
	tally := sampleTally()
	s := NewScreen("sqlite:///var/lib/app/store.db", tally, time.Second)
	s.Update(tea.WindowSizeMsg{Width: 100, Height: 20})
	s.Update(tick(noon.Add(time.Second)))
	text := s.press()
	lines := strings.Split(text, "\n")
	require.Len(t, lines, 20)
	for _, line := range lines {
		require.LessOrEqual(t, ansi.StringWidth(line), 100)
	}
	require.Equal(t, "ashlar top  sqlite:///var/lib/app/store.db", lines[0])
	require.Contains(t, lines[1], "2 types, 1,235 resources, ")
	require.Contains(t, lines[1], "behind by at most 3 ms")
	require.Equal(t, []string{"TYPE", "RESOURCES", "SIZE", "WRITES/S", "DELETES/S"}, strings.Fields(lines[3]))
	require.Regexp(t, `^demo/Album +1,234 +`, lines[4])
	require.Regexp(t, `^demo/Studio +1 +`, lines[5])
	require.Contains(t, text, `create  demo/Studio  p/n  "abbey\x1b[2J"`)
	require.NotContains(t, s.View().Content, "\x1b[2J", "names are escaped")

	require.Contains(t, s.press("?"), "sort by type, resources, bytes or changes")
	require.NotContains(t, s.press("?"), "sort by type, resources, bytes or changes")

	s.press("/", "s", "t", "x", "backspace")
	require.Contains(t, s.press(), "filter: st_")
	text = s.press("enter")
	require.NotContains(t, text, "demo/Album ")
	require.Contains(t, text, "demo/Studio")
	require.Contains(t, s.press("esc"), "demo/Album")

	require.Contains(t, s.press("s"), "(by resources)")
	require.Contains(t, s.press("r"), "(by resources, reversed)")
	lines = strings.Split(s.press(), "\n")
	require.Regexp(t, `^demo/Studio`, lines[4])

	require.Contains(t, s.press("p"), "PAUSED")
	tally.Count(upsert(resource("Studio", "late", 10)), noon)
	s.Update(tick(noon.Add(2 * time.Second)))
	require.NotContains(t, s.press(), "late")
	s.press("p")
	s.Update(tick(noon.Add(3 * time.Second)))
	require.Contains(t, s.press(), "late")

	_, cmd := s.Update(tea.KeyPressMsg{Code: 'q', Text: "q"})
	require.Equal(t, tea.QuitMsg{}, cmd())
}

func TestScreenOfAnySize(t *testing.T) {
	t.Parallel()
	tally := sampleTally()
	for i := range 50 {
		tally.Count(upsert(resource(fmt.Sprint("Kind", i), "one", 1)), noon)
	}
	s := NewScreen("mem://", tally, time.Second)
	s.Update(tick(noon.Add(time.Second)))
	for _, width := range []int{0, 1, 7, 40, 80, 129} {
		for height := range 30 {
			s.Update(tea.WindowSizeMsg{Width: width, Height: height})
			lines := strings.Split(s.press(), "\n")
			require.LessOrEqual(t, len(lines), max(height, 2))
			for _, line := range lines {
				require.LessOrEqual(t, ansi.StringWidth(line), width)
			}
		}
	}
	s.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
	require.Contains(t, s.press(), "more types")
}

func TestPrint(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, Print(t.Context(), &out, sampleTally(), time.Millisecond, 2))
	blocks := strings.SplitAfter(out.String(), "\n")
	require.Contains(t, blocks[0], "2 types, 1,235 resources")
	require.Equal(t, 1, strings.Count(out.String(), "abbey"), "a change is printed once")
	require.Equal(t, 2, strings.Count(out.String(), "TYPE"))

	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, Print(over, &out, sampleTally(), time.Hour, 0))
}
