package postgres

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestStaleBlocker lets calls end after a session has blocked writers: just before, and an hour ago. Later errors have other causes, and must
// not name a session that may be innocent.
func TestStaleBlocker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // no time passes by itself
		w := newWriter(&database{}, &currentInbox{}, nil)
		ended, end := context.WithCancel(t.Context())
		end()
		res := fixture.Resource("name", "")
		for age, isNamed := range map[time.Duration]bool{0: true, time.Hour: false} {
			b := &noteBlocker{pid: 1, role: "role", foundAt: time.Now().Add(-age)}
			w.blocker.Store(b)
			err := w.Apply(ended, []driver.Mutation{{Verb: driver.Write, Key: key.Of(res.Id), Resource: res}})
			if err == nil || strings.Contains(err.Error(), "role") != isNamed {
				t.Errorf("%v after a session was found: %v, expected that the error names it: %t", age, err, isNamed)
			}
		}
	})
}
