package migrate

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// A process that starts while another is working fails with ErrBusy, even if it is slower than the other's heartbeats.
func TestBusyWhileBeginning(t *testing.T) {
	t.Parallel()
	from, to := fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
	fill(t, from, []*resourcepb.Resource{small("a", "1")})
	ctx, stop := context.WithCancel(limited(t))
	defer stop()
	if _, err := Run(ctx, from, to, quick(Options{Live: true, Progress: func(p Progress) {
		if p.Phase == Following {
			stop()
		}
	}})); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	looks := 0
	slow := &disturbed{tapped: &tapped{Backend: from, tap: newTap(), role: "from"}}
	slow.look = func() {
		if looks++; looks > 1000 {
			panic("it looks for ever")
		}
		store := moverOf(t, to)
		value, revision, err := store.ReadNote(t.Context(), migrationNote)
		if err == nil {
			_, err = store.WriteNote(t.Context(), migrationNote, value, revision)
		}
		if err != nil {
			t.Error(err)
		}
	}
	r, err := Run(limited(t), storage.Backend(slow), to, quick(Options{Live: true, CutoverLag: time.Hour}))
	if !errors.Is(err, ErrBusy) || r.HasJournal {
		t.Errorf("got %+v and %v, expected %v", r, err, ErrBusy)
	}
}
