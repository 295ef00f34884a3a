package migrate

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// A process is suspended while it determines the state, and resumes when another process has completed the migration. It does not start
// again, because programs use the target by then.
func TestCompletedWhileBeginning(t *testing.T) {
	t.Parallel()
	for _, into := range []Into{Mirror, Overwrite} {
		t.Run(fmt.Sprint("into ", into), func(t *testing.T) {
			t.Parallel()
			from, to := fixture.Open(t, local[0].url(t)), fixture.Open(t, local[0].url(t))
			fill(t, from, []*resourcepb.Resource{small("stays", "1"), small("changes", "1")})
			options := Options{Into: into, Live: true, CutoverLag: time.Hour}
			var once sync.Once
			slow := &disturbed{tapped: &tapped{Backend: from, tap: newTap(), role: "from"}}
			slow.saw = func() {
				once.Do(func() {
					if _, err := Run(limited(t), from, to, quick(options)); err != nil {
						t.Error(err)
					}
					write(t, to, small("changes", "2"))
					write(t, to, small("new", "1"))
				})
			}
			r, err := Run(limited(t), storage.Backend(slow), to, quick(options))
			if err != nil || !r.WasComplete {
				t.Errorf("got %+v and %v, expected that it is complete already", r, err)
			}
			want := map[string]string{"stays": "1", "changes": "2", "new": "1"}
			if got := contents(t, to); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("the target has %v, expected %v", got, want)
			}
		})
	}
}
