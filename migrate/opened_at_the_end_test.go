package migrate

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// A tool is delayed before it records that both sides are equal, until a user assumes it dead and opens the source. The migration is then not complete.
func TestOpenedByHandAtTheEnd(t *testing.T) {
	t.Parallel()
	for _, plain := range []bool{false, true} {
		t.Run(fmt.Sprint("plain ", plain), func(t *testing.T) {
			t.Parallel()
			from, to := fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
			fill(t, from, []*resourcepb.Resource{small("a", "1")})
			var once sync.Once
			late := &disturbed{tapped: &tapped{Backend: to, tap: newTap(), role: "to", plain: plain}}
			late.write = func(_ string, value []byte) {
				if !bytes.Contains(value, []byte(`"phase":"open"`)) {
					return
				}
				once.Do(func() {
					if err := Unfence(limited(t), from); err != nil {
						t.Error(err)
					}
					write(t, from, small("a", "2"))
				})
			}
			source := &tapped{Backend: from, tap: newTap(), role: "from", plain: plain}
			o := quick(Options{Live: true, CutoverLag: time.Hour})
			r, err := Run(limited(t), source, storage.Backend(late), o)
			if !errors.Is(err, errOpened) || r.Phase == Complete || r.Next != Retry || r.SourceClosed || fenceOf(t, from) != "" {
				t.Errorf("got %+v and %v, expected %v", r, err, errOpened)
			}
			if r, err := Run(limited(t), source, storage.Backend(late), o); err != nil || r.Phase != Complete {
				t.Errorf("continued: %+v, %v", r, err)
			}
			if got := contents(t, to)["a"]; got != "2" {
				t.Errorf("the target has %q", got)
			}
		})
	}
}
