package growth

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
)

func sample() *Growth {
	g := &Growth{Backend: "SQLite", Raw: "ncruces <&>", Notes: []string{"A note of more than one line, so that it is cut where a word ends."}}
	for _, what := range []string{"read", "write", "list of 1,000", "first page of 100", "owner references", "watch start"} {
		g.Add(what, "ns", Point{1000, 40_000, 61_000})
		g.Add(what, "ns", Point{1_000_000, 50_000, 61_000 * 700})
	}
	g.Add("memory", "bytes", Point{1000, 30e6, 40e6})
	g.Add("memory", "bytes", Point{1_000_000, 33e6, 41e6})
	return g
}

// The picture is valid XML, contains every series and its labels, and refers to nothing outside.
func TestSVG(t *testing.T) {
	t.Parallel()
	var out, again bytes.Buffer
	if err := errors.Join(sample().SVG(&out), sample().SVG(&again)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out.Bytes(), again.Bytes()) {
		t.Error("the same figures made a different picture")
	}
	lines, text := 0, ""
	for d := xml.NewDecoder(&out); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.CharData:
			text += string(token) + "\n"
		case xml.StartElement:
			if token.Name.Local == "polyline" {
				lines++
			}
			for _, a := range token.Attr {
				if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
					t.Errorf("%s of %s is %s", a.Name.Local, token.Name.Local, a.Value)
				}
				if strings.Contains(a.Value, "//") && a.Value != token.Name.Space {
					t.Errorf("%s of %s refers to an outside resource: %s", a.Name.Local, token.Name.Local, a.Value)
				}
			}
		}
	}
	if lines != 14 {
		t.Errorf("drew %d lines, expected 14: two sides of 7 series", lines)
	}
	for _, want := range []string{"SQLite: how costs grow", "raw: ncruces <&>", "Ashlar 61 µs → 43 ms", "raw 40 µs → 50 µs", "Ashlar 40 MB → 41 MB",
		"1k", "1M", "1M resources: 700.00", "in relation to 1k resources", "of more than one line,"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing", want)
		}
	}
}

func TestReadReturnsWrittenGrowth(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	if err := sample().Write(&text); err != nil {
		t.Fatal(err)
	}
	back, err := Read(&text)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back, sample()) {
		t.Errorf("read %+v, expected %+v", back, sample())
	}
}

// SVG refuses values that logarithmic axes cannot show, and Read refuses unknown units.
func TestInvalidSeriesAreRefused(t *testing.T) {
	t.Parallel()
	for name, points := range map[string][]Point{
		"no points": nil, "a value of 0": {{1000, 1, 0}}, "a size twice": {{1000, 1, 1}, {1000, 1, 1}}, "sizes that fall": {{1000, 1, 1}, {10, 1, 1}},
	} {
		g := &Growth{Series: []Series{{Operation: "read", Unit: "ns", Points: points}}}
		if err := g.SVG(io.Discard); err == nil {
			t.Errorf("SVG drew a series with %s, expected an error", name)
		}
	}
	if _, err := Read(strings.NewReader(`{"series": [{"what": "read", "unit": "parsecs", "points": [{"resources": 1, "raw": 1, "ashlar": 1}]}]}`)); err == nil {
		t.Error("an unknown unit was accepted")
	}
}
