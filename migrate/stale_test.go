package migrate

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/storetest"
	"github.com/ashlar-dev/storage/resourcepb"
)

// late is a store whose fence is looked at before something else happens.
type late struct {
	*tapped
	then func()
}

func (l *late) As(target any) bool {
	ok := l.tapped.As(target)
	if p, is := target.(*driver.Mover); is {
		*p = lateMover{*p, l}
	}
	return ok
}

type lateMover struct {
	driver.Mover
	l *late
}

func (m lateMover) Fence(ctx context.Context) (driver.FenceState, error) {
	state, err := m.Mover.Fence(ctx)
	if then := m.l.then; then != nil {
		m.l.then = nil
		then()
	}
	return state, err
}

// A process that was frozen while it found out how things stand, and wakes up when another has completed the migration, does not
// begin it anew: programs use the target by then.
func TestCompletedWhileBeginning(t *testing.T) {
	t.Parallel()
	for _, into := range []Into{Mirror, Overwrite} {
		t.Run(fmt.Sprint("into ", into), func(t *testing.T) {
			t.Parallel()
			from, to := storetest.Open(t, local[0].url(t)), storetest.Open(t, local[0].url(t))
			fill(t, from, []*resourcepb.Resource{small("stays", "1"), small("changes", "1")})
			options := Options{Into: into, Live: true, CutoverLag: time.Hour}
			slow := &late{tapped: &tapped{Backend: from, tap: newTap(), role: "from"}}
			slow.then = func() {
				if _, err := Run(limited(t), from, to, quick(options)); err != nil {
					t.Error(err)
				}
				write(t, to, small("changes", "2"))
				write(t, to, small("new", "1"))
			}
			r, err := Run(limited(t), storage.Backend(slow), to, quick(options))
			if err != nil || !r.Already {
				t.Errorf("got %+v and %v, expected that it is complete already", r, err)
			}
			want := map[string]string{"stays": "1", "changes": "2", "new": "1"}
			if got := contents(t, to); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("the target holds %v, expected %v", got, want)
			}
		})
	}
}
