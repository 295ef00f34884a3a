// Command ratios draws the printed ratios of a comparison: a bar for each line like
//
//	ratio kine-postgres/cas/16 3.56
//
// on a logarithmic axis, from 1, the point of equal speed.
//
//	make bench BACKEND=kine | tee kine.txt
//	go run ./ratios "Ashlar beside kine" < kine.txt > ../docs/assets/kine.svg
package main

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: ratios TITLE < output of a comparison > picture.svg")
		os.Exit(2)
	}
	all, err := read(os.Stdin)
	if err == nil {
		err = draw(os.Stdout, os.Args[1], all)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "ratios:", err)
		os.Exit(1)
	}
}

// ratio is the speed of one side relative to the other in a comparison.
type ratio struct {
	name  string
	value float64
}

// read returns the ratios in any output.
func read(r io.Reader) (all []ratio, err error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var one ratio
		if !strings.HasPrefix(lines.Text(), "ratio ") {
			continue
		}
		if _, err := fmt.Sscanf(lines.Text(), "ratio %s %g", &one.name, &one.value); err != nil || one.value <= 0 {
			return nil, fmt.Errorf("the line %q is not a ratio", lines.Text())
		}
		all = append(all, one)
	}
	if err = lines.Err(); err == nil && len(all) == 0 {
		err = fmt.Errorf("no line begins with \"ratio \"")
	}
	return all, err
}

// Dimensions of the picture, in pixels.
const (
	width, left, right = 760, 250, 700
	top, row           = 60, 22

	ink, faint   = "#24292f", "#d0d7de"
	faster, less = "#0969da", "#bc4c00"
)

func draw(w io.Writer, title string, all []ratio) error {
	low, high := 0.5, 2.0
	for _, r := range all {
		low, high = min(low, r.value*0.8), max(high, r.value*1.25)
	}
	x := func(of float64) float64 { return left + math.Log(of/low)/math.Log(high/low)*(right-left) }
	height := top + row*len(all) + 30
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" fill="%s">`+"\n",
		width, height, width, height, ink)
	fmt.Fprintf(&b, "<title>%s</title>\n"+`<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", escape(title), width, height)
	fmt.Fprintf(&b, `<text x="16" y="26" font-size="17" font-weight="bold">%s</text>`+"\n", escape(title))
	fmt.Fprintf(&b, `<text x="16" y="46">Ashlar's operations a second, divided by the other side's; right of 1, Ashlar is faster</text>`+"\n")
	for _, tick := range []float64{0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100} {
		if tick < low || tick > high {
			continue
		}
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="%s"/>`, x(tick), top, x(tick), height-24, faint)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%g</text>`+"\n", x(tick), height-8, tick)
	}
	for i, r := range all {
		y, color := top+row*i, faster
		if r.value < 1 {
			color = less
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`, left-10, y+15, escape(r.name))
		fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`, min(x(r.value), x(1)), y+4, math.Abs(x(r.value)-x(1)), row-8, color)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d">%s</text>`+"\n", max(x(r.value), x(1))+5, y+15, figure(r.value))
	}
	fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="%s"/>`+"\n</svg>\n", x(1), top, x(1), height-24, ink)
	_, err := io.WriteString(w, b.String())
	return err
}

// figure formats small values with two digits, and others as whole numbers.
func figure(of float64) string {
	if of >= 10 {
		return fmt.Sprintf("%.0f", of)
	}
	return fmt.Sprintf("%.2g", of)
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a strings.Builder never fails
	return b.String()
}
