package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	t.Parallel()
	all, err := read(strings.NewReader("goos: linux\nratio a/1 0.5\nlatency a/1 3\nratio b/16 12.25\nPASS\n"))
	if err != nil || len(all) != 2 || all[0] != (ratio{"a/1", 0.5}) || all[1] != (ratio{"b/16", 12.25}) {
		t.Errorf("got %v, %v", all, err)
	}
	for _, wrong := range []string{"", "PASS\n", "ratio a/1\n", "ratio a/1 0\n", "ratio a/1 fast\n"} {
		if all, err := read(strings.NewReader(wrong)); err == nil {
			t.Errorf("%q is accepted as %v", wrong, all)
		}
	}
}

// A picture is valid XML for any names, and has a bar and a figure for each ratio.
func TestDraw(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	if err := draw(&b, "A & B", []ratio{{"<a>", 0.01}, {"b", 1}, {"c", 250}}); err != nil {
		t.Fatal(err)
	}
	texts := map[string]int{}
	for d := xml.NewDecoder(strings.NewReader(b.String())); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if text, ok := token.(xml.CharData); ok {
			texts[string(text)]++
		}
	}
	for _, want := range []string{"A & B", "<a>", "b", "c", "0.01", "250"} {
		if texts[want] == 0 {
			t.Errorf("the picture does not contain %q", want)
		}
	}
}
