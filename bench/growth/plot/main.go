// Command plot draws the results of BenchmarkGrowth: an SVG file beside each JSON file in its arguments.
//
//	go run ./growth/plot ../docs/assets/growth/*.json
package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"github.com/ashlar-dev/storage/bench/growth"
)

func main() {
	for _, name := range os.Args[1:] {
		if err := plot(name); err != nil {
			fmt.Fprintf(os.Stderr, "plot %s: %v\n", name, err)
			os.Exit(1)
		}
	}
}

func plot(name string) error {
	base, ok := strings.CutSuffix(name, ".json")
	if !ok {
		return fmt.Errorf("expected a name that ends in .json")
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	g, err := growth.Read(bytes.NewReader(data))
	if err != nil {
		return err
	}
	var picture bytes.Buffer
	if err := g.SVG(&picture); err != nil {
		return err
	}
	return os.WriteFile(base+".svg", picture.Bytes(), 0o644)
}
