package migrate

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	_ "github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
	_ "github.com/ashlar-dev/storage/sqlite"
)

// storeKind creates URLs of new, empty stores.
type storeKind struct {
	name string
	url  func(t testing.TB) string
}

var local = []storeKind{
	{"memory", func(testing.TB) string { return "mem://" + rand.Text() }},
	{"sqlite", func(t testing.TB) string { return "sqlite://" + filepath.Join(t.TempDir(), "store.db") }},
}

// resources returns the size of the moved stores: ASHLAR_MIGRATE_RESOURCES, or a small number.
func resources(t testing.TB) int {
	t.Helper()
	text := os.Getenv("ASHLAR_MIGRATE_RESOURCES")
	if text == "" {
		return 300
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("ASHLAR_MIGRATE_RESOURCES: %v", err)
	}
	return n
}

// TestEveryPair moves a store from every kind to every kind, and compares the results.
func TestEveryPair(t *testing.T) {
	t.Parallel()
	n := resources(t)
	for _, from := range kinds() {
		for _, to := range kinds() {
			t.Run(from.name+" to "+to.name, func(t *testing.T) {
				t.Parallel()
				source, target := fixture.Open(t, from.url(t)), fixture.Open(t, to.url(t))
				fill(t, source, zoo(n))
				o := quick(Options{Live: true, CutoverLag: time.Hour})
				r, err := Run(limited(t), source, target, o)
				if err != nil {
					t.Fatal(err)
				}
				report := wantEqual(t, source, target)
				if report.Source != n || r.Work.Creations != int64(n) {
					t.Errorf("%d resources, %d created, expected %d", report.Source, r.Work.Creations, n)
				}
				wantFenced(t, source)
				write(t, target, small("open", "1"))
				t.Logf("%d resources, %d bytes, in %v, closed for %v", n, report.Bytes, r.Duration.Round(time.Millisecond),
					r.FenceTime.Round(time.Millisecond))
			})
		}
	}
}

// TestEveryPairUnderLoad moves a store of every kind to the next, while programs with handles of their own write to it, and its
// history is slow. The long form moves every kind to every kind, and pages of history take two seconds.
func TestEveryPairUnderLoad(t *testing.T) {
	t.Parallel()
	all := kinds()
	long := os.Getenv("ASHLAR_MIGRATE_RESOURCES") != ""
	size, takes := 200, 20*time.Millisecond
	if long {
		size, takes = 1000, 2*time.Second
	}
	for i, from := range all {
		for j, to := range all {
			if !long && j != (i+1)%len(all) {
				continue
			}
			t.Run(from.name+" to "+to.name, func(t *testing.T) {
				t.Parallel()
				underLoad(t, from.url(t), to.url(t), func(b storage.Backend) storage.Backend {
					return slowly(b, size, func(int) <-chan struct{} { return taking(takes) })
				})
			})
		}
	}
}

func underLoad(t *testing.T, from, to string, slowly func(storage.Backend) storage.Backend) {
	source, target := fixture.Open(t, from), fixture.Open(t, to)
	fill(t, source, zoo(200))
	load := startWriters(t, 4, func() storage.Backend { return fixture.Open(t, from) })
	load.awaitWrites(t, 20)
	cutover := make(chan struct{}, 1)
	following := make(chan struct{}, 1000)
	over := make(chan error, 1)
	go func() {
		_, err := Run(limited(t), slowly(source), target, quick(Options{Live: true, Cutover: cutover, Progress: func(p Progress) {
			if p.Phase == Following {
				following <- struct{}{}
			}
		}}))
		over <- err
	}()
	select {
	case <-following:
		load.awaitWrites(t, 100)
		cutover <- struct{}{}
	case err := <-over:
		t.Fatal(err)
	}
	if err := <-over; err != nil {
		t.Fatal(err)
	}
	load.check(t, target)
	wantEqual(t, source, target)
	wantFenced(t, source)
}

// TestDifferencesAreFound compares long listings with differences at the beginning, in the middle and at the end.
func TestDifferencesAreFound(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds() {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			a, b := fixture.Open(t, "mem://"), fixture.Open(t, kind.url(t))
			all := zoo(300)
			fill(t, a, all)
			fill(t, b, all[:250])
			changed := all[100]
			changed.Generation = "changed"
			write(t, b, changed)
			first, last := small("first", ""), small("last", "")
			first.Id.Type.Group, last.Id.Type.Group = " ", "\U0010ffff"
			fill(t, b, []*resourcepb.Resource{first, last})
			got := make(map[string]int)
			report, err := Verify(limited(t), a, b, &VerifyOptions{PageSize: 7, OnDifference: func(d Difference) error {
				got[fmt.Sprint(d.Kind)]++
				return nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			if report.Missing != 50 || report.Different != 1 || report.Extra != 2 || report.Equal() {
				t.Errorf("got %v, expected 50 missing, 1 different, 2 extra", report)
			}
			if got["missing"] != 50 || got["different"] != 1 || got["extra"] != 2 || report.SourceDigest == report.TargetDigest {
				t.Errorf("OnDifference got %v, expected 50 missing, 1 different, 2 extra, and different digests", got)
			}
		})
	}
}
