package migrate

import (
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// A resource with a time to live that was renewed in the source, by a write without a change, has a new version in the target: an expiry.Expirer that
// runs over the target from before the cutover must not count from the copy. The same holds if the watch of the source does not prove its end.
func TestRenewedResourceIsWritten(t *testing.T) {
	t.Parallel()
	never := make(chan struct{})
	for name, source := range map[string]func(storage.Backend) storage.Backend{
		"with bookmarks": func(b storage.Backend) storage.Backend { return b },
		"without": func(b storage.Backend) storage.Backend {
			from := slowly(b, 1, func(int) <-chan struct{} { return never })
			from.plain = true
			return from
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plain, to := fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
			mortal, other := small("mortal", "1"), small("other", "1")
			mortal.Ttl = durationpb.New(time.Minute)
			write(t, plain, mortal)
			write(t, plain, other)
			cutover := make(chan struct{}, 1)
			copied := map[string]string{}
			var once sync.Once
			o := quick(Options{Live: true, Cutover: cutover, Progress: func(p Progress) {
				if p.Phase != Following {
					return
				}
				once.Do(func() {
					for _, res := range []*resourcepb.Resource{mortal, other} {
						copied[res.Id.Name] = fixture.Stored(t, to, res.Id).GetVersion()
						write(t, plain, res)
					}
					cutover <- struct{}{}
				})
			}})
			if _, err := Run(limited(t), source(plain), to, o); err != nil {
				t.Fatal(err)
			}
			wantEqual(t, plain, to)
			if v := fixture.Stored(t, to, mortal.Id).GetVersion(); v == copied["mortal"] {
				t.Error("the renewed resource has the version of its copy")
			}
			if v := fixture.Stored(t, to, other.Id).GetVersion(); v != copied["other"] {
				t.Error("an equal resource without a time to live was written again")
			}
		})
	}
}
