package bench

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ashlar-dev/storage/bench/growth"
)

var (
	largest = flag.Int("largest", 1_000_000, "the largest store of BenchmarkGrowth, unless the backend limits it")
	plots   = flag.String("plots", "", "the folder for the results of BenchmarkGrowth (default: they are only printed)")
)

// growing is one side of a comparison with a growing store: items with the numbers 0 to n-1, which nameOf names.
type growing interface {
	// add creates the items from one number to another, and calls done from time to time with the number of created ones.
	add(from, to int, done func(n int)) error
	// settle makes the database finish the background work of filling.
	settle() error
	// read reads an item; write replaces it if it is unchanged since the last read or write.
	read(i int) error
	write(i int) error
	// list, watch and owned return the number of items with a name prefix, in the snapshot of a watch that is then closed, and with
	// an owner.
	list(prefix string) (int, error)
	watch(prefix string) (int, error)
	owned(i int) (int, error)
	// first reads the first page of a listing of everything, walk all pages.
	first(limit int) (int, error)
	walk(limit int) (int, error)
	close() error
}

// growths describes the two sides of a backend.
type growths struct {
	name   string // for the file: "sqlite"
	shown  string // "SQLite"
	raw    string // "ncruces"
	most   int    // the largest store
	notes  []string
	sides  [2]growing // raw, ours
	memory func(side, resources int) (float64, error)
}

// Names sort like their numbers, so that 1,000 or 100 neighbours share a prefix.
const digits = 7

func nameOf(i int) string { return fmt.Sprintf("%0*d", digits, i) }

// prefixOf returns the prefix of this many names, a power of ten, including the name of i.
func prefixOf(i, neighbours int) string {
	length := digits
	for ; neighbours > 1; neighbours /= 10 {
		length--
	}
	return nameOf(i)[:length]
}

// ownerOf returns the owner of i. Every tenth item owns the nine that follow it.
func ownerOf(i int) (owner int, owned bool) { return i / 10 * 10, i%10 != 0 }

const childrenOfOne = 9

// walkNames reads everything in pages that begin after a name. Numbers have no gaps, so the name is known.
func walkNames(limit int, pageAfter func(after string, limit int) (int, error)) (n int, err error) {
	for after := ""; ; after = nameOf(n - 1) {
		found, err := pageAfter(after, limit)
		if n += found; err != nil || found < limit {
			return n, err
		}
	}
}

// sizes returns the measured sizes.
func (g *growths) sizes() []int {
	if *smoke {
		return []int{100, 1000}
	}
	sizes := []int{}
	for n := 1000; n <= min(g.most, *largest); n *= 10 {
		sizes = append(sizes, n)
	}
	return sizes
}

// run fills both sides and measures each size. It stores the results after each size, so that an interrupted run keeps them.
func (g *growths) run(b *testing.B) {
	b.Helper()
	result := &growth.Growth{Backend: g.shown, Raw: g.raw, Notes: g.notes}
	filled := 0
	for _, n := range g.sizes() {
		for s, side := range g.sides {
			if err := errors.Join(side.add(filled, n, g.progress(s, filled, n)), side.settle()); err != nil {
				b.Fatalf("%s: filling to %d: %v", g.sideName(s), n, err)
			}
		}
		filled = n
		for _, o := range operationsOf(n) {
			g.measure(b, result, o, n)
		}
		g.weigh(b, result, n)
		g.save(b, result)
	}
}

func (g *growths) sideName(side int) string { return [2]string{g.raw, "ashlar"}[side] }

// progress prints the progress of filling, at most every two seconds.
func (g *growths) progress(side, from, to int) func(done int) {
	began, last := time.Now(), time.Now()
	return func(done int) {
		now := time.Now()
		if from+done < to && now.Sub(last) < 2*time.Second {
			return
		}
		last = now
		fmt.Printf("growth %s: %s holds %d of %d, %.0f more a second\n", g.name, g.sideName(side), from+done, to,
			float64(done)/max(now.Sub(began).Seconds(), 1e-9))
	}
}

// operation is a measured operation.
type operation struct {
	what string
	do   func(side growing, i int) error
}

// operationsOf returns the operations on a store of n items. i is any number.
func operationsOf(n int) []operation {
	at := func(i int) int { return i * 7919 % n } // a prime: consecutive operations use distant items
	exactly := func(want int, count func() (int, error)) error {
		found, err := count()
		if err == nil && found != want {
			err = fmt.Errorf("found %d, expected %d", found, want)
		}
		return err
	}
	return []operation{
		{"read", func(s growing, i int) error { return s.read(at(i)) }},
		{"write", func(s growing, i int) error { return s.write(at(i)) }},
		{"list of 1,000", func(s growing, i int) error {
			return exactly(min(1000, n), func() (int, error) { return s.list(prefixOf(at(i), 1000)) })
		}},
		{"first page of 100", func(s growing, _ int) error { return exactly(100, func() (int, error) { return s.first(100) }) }},
		{"owner references", func(s growing, i int) error {
			owner, _ := ownerOf(at(i))
			return exactly(childrenOfOne, func() (int, error) { return s.owned(owner) })
		}},
		{"watch start", func(s growing, i int) error {
			return exactly(100, func() (int, error) { return s.watch(prefixOf(at(i), 100)) })
		}},
	}
}

// measure runs an operation on both sides in turns.
func (g *growths) measure(b *testing.B, result *growth.Growth, o operation, n int) {
	b.Helper()
	if !selected(g.name + "/" + o.what) {
		return
	}
	var costs [2][]float64
	for range repetitions() {
		for s, of := range g.sides {
			turn := takeTurn(b, side{g.sideName(s), func(_, i int) error { return o.do(of, i) }}, 1, nil)
			costs[s] = append(costs[s], 1e9/turn.rate)
		}
	}
	g.report(result, o.what, "ns", growth.Point{Resources: n, Raw: median(costs[0]), Ashlar: median(costs[1])})
}

// weigh measures memory.
func (g *growths) weigh(b *testing.B, result *growth.Growth, n int) {
	b.Helper()
	if !selected(g.name + "/memory") {
		return
	}
	var bytes [2]float64
	for s := range g.sides {
		var err error
		if bytes[s], err = g.memory(s, n); err != nil {
			b.Fatalf("%s: memory at %d: %v", g.sideName(s), n, err)
		}
	}
	g.report(result, "memory", "bytes", growth.Point{Resources: n, Raw: bytes[0], Ashlar: bytes[1]})
}

func (g *growths) report(result *growth.Growth, what, unit string, p growth.Point) {
	fmt.Printf("growth %s: %d resources: %s: %s %.0f %s, ashlar %.0f %s\n", g.name, p.Resources, what, g.raw, p.Raw, unit, p.Ashlar, unit)
	result.Add(what, unit, p)
}

// save stores the results for growth/plot.
func (g *growths) save(b *testing.B, result *growth.Growth) {
	b.Helper()
	if *plots == "" {
		return
	}
	f, err := os.Create(filepath.Join(*plots, g.name+".json"))
	if err == nil {
		err = errors.Join(result.Write(f), f.Close())
	}
	if err != nil {
		b.Fatal(err)
	}
}
