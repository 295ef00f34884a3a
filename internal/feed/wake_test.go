package feed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/telemetry"
)

// sleeper starts a watch that waits for quiet events, and returns the channel of its next result.
func sleeper(t *testing.T, f *Feed[int], l *line) (w storage.Watch, nextCh chan error) {
	t.Helper()
	w, nextCh = watchFromNow(t, f, l, quietOnly), make(chan error, 1)
	go func() {
		_, err := w.Next(t.Context())
		nextCh <- err
	}()
	synctest.Wait()
	l.append("loud") // the first one is passed before the watch waits
	time.Sleep(time.Second)
	return w, nextCh
}

// A watch is not woken for each event that its filter excludes. It advances later, together with all others. A large batch wakes all watches at
// once.
func TestExcludedEventsWakeLater(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newProving()
		f := New(p, Options[int]{})
		defer f.Close()
		w, nextCh := sleeper(t, f, p.line)
		at := 1
		for _, batch := range []struct {
			size   int
			isLate bool
		}{{1, true}, {directWakeLimit, true}, {directWakeLimit + 1, false}} {
			release := p.hold()
			for range batch.size {
				p.append("loud")
			}
			release()
			synctest.Wait()
			if isLate := w.Cursor() == strconv.Itoa(at); isLate != batch.isLate {
				t.Errorf("the cursor is %s just after %d events that follow %d, expected that it is late: %v", w.Cursor(), batch.size, at, batch.isLate)
			}
			at += batch.size
			time.Sleep(wakeDelay)
			synctest.Wait()
			if w.Cursor() != strconv.Itoa(at) {
				t.Errorf("the cursor is %s some time after event %d", w.Cursor(), at)
			}
		}
		w.Close()
		<-nextCh
	})
}

// A watch that waits does not fall out of the log, however fast the events that its filter excludes arrive: neither by their number nor by their
// size.
func TestWaitingWatchStaysInLog(t *testing.T) {
	for _, opts := range []Options[int]{{MaxEvents: 40}, {MaxBytes: 40 * 100}} {
		t.Run(fmt.Sprint(opts.MaxEvents), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				l := newLine()
				f := New(l, opts)
				defer f.Close()
				_, nextCh := sleeper(t, f, l)
				for range 200 {
					l.append("loud")
					synctest.Wait() // the clock stands still, so that only the limits of the log wake the watch
				}
				l.append("quiet")
				if err := <-nextCh; err != nil {
					t.Fatal(err)
				}
				if l.pages != 0 {
					t.Errorf("%d pages of history were read", l.pages)
				}
			})
		})
	}
}

// The log holds 10,000 events and 32 MiB by default, so that a slow watch does not read history.
func TestDefaultLimits(t *testing.T) {
	for _, size := range []int{100, 8 << 10} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				l := newLine()
				l.size = size
				f := New(l, Options[int]{})
				defer f.Close()
				w := watchFromNow(t, f, l, all)
				const count = 3000
				for range count {
					l.append("a")
				}
				for i := range count {
					wantVersion(t, w, i+1)
				}
				if l.pages != 0 {
					t.Errorf("%d pages of history were read", l.pages)
				}
			})
		})
	}
}

// The log holds as many events and bytes as its limits say. A batch without events counts as one event; each watch begins at one.
func TestExactLimits(t *testing.T) {
	for name, opts := range map[string]Options[int]{"events": {MaxEvents: 4}, "bytes": {MaxBytes: 300}} {
		for count, pages := range map[int]int{3: 0, 4: 1} {
			t.Run(fmt.Sprint(name, count), func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					l := newLine()
					f := New(l, opts)
					defer f.Close()
					w := watchFromNow(t, f, l, all)
					for range count {
						l.append("a")
						synctest.Wait() // a batch for each event
					}
					for i := range count {
						wantVersion(t, w, i+1)
					}
					if l.pages != pages {
						t.Errorf("%d pages of history were read, expected %d", l.pages, pages)
					}
				})
			})
		}
	}
}

// Without a limit of the idle time, the source runs on after the last watch was closed.
func TestNoIdleTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newLine()
		f := New(l, Options[int]{})
		defer f.Close()
		w := watchFromNow(t, f, l, all)
		f.mu.Lock()
		first := f.current
		f.mu.Unlock()
		w.Close()
		time.Sleep(time.Hour)
		select {
		case <-first.endCh:
			t.Error("the source has ended")
		default:
		}
	})
}

// lingering is a line whose Run returns some time after its context has ended.
type lingering struct{ *line }

func (l *lingering) Run(ctx context.Context, ready func(int), publish func([]*driver.Event[int], int)) error {
	err := l.line.Run(ctx, ready, publish)
	time.Sleep(time.Hour)
	return err
}

// A watch that begins while the idle source still ends gets a new run.
func TestStartWhileIdleSourceEnds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := &lingering{newLine()}
		f := New(l, Options[int]{IdleTimeout: time.Second})
		defer f.Close()
		watchFromNow(t, f, l.line, all).Close()
		time.Sleep(time.Minute)
		w := watchFromNow(t, f, l.line, all)
		defer w.Close()
		wantVersion(t, w, l.append("a"))
	})
}

// The log of the program has one warning for a source that fails, and none for one that the feed has ended.
func TestFailedSourceIsLogged(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var log bytes.Buffer
		recorder := telemetry.New(telemetry.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, "test", "")
		for _, ending := range []struct {
			end      func(*line)
			warnings int
		}{{func(l *line) { l.breakDown(errors.New("broken")) }, 1}, {func(*line) {}, 0}} {
			log.Reset()
			l := newLine()
			f := New(l, Options[int]{IdleTimeout: time.Second, Telemetry: recorder})
			w := watchFromNow(t, f, l, all)
			ending.end(l)
			synctest.Wait()
			w.Close()
			time.Sleep(time.Minute)
			f.Close()
			if got := strings.Count(log.String(), "level=WARN"); got != ending.warnings {
				t.Errorf("%d warnings, expected %d:\n%s", got, ending.warnings, log.String())
			}
		}
	})
}

// A feed with telemetry measures its watches, and the bytes that the slowest one has not read.
func TestBacklog(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newLine()
		f := New(l, Options[int]{Telemetry: telemetry.New(telemetry.Options{Logger: slog.New(slog.DiscardHandler)}, "test", "")})
		defer f.Close()
		expect := func(watches int, bytes int64) {
			t.Helper()
			if count, backlog := f.open.measure(); count != watches || backlog != bytes {
				t.Errorf("%d watches with a backlog of %d bytes, expected %d and %d", count, backlog, watches, bytes)
			}
		}
		fast, slow := watchFromNow(t, f, l, all), watchFromNow(t, f, l, all)
		expect(2, 0)
		readAll := func(w storage.Watch) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			for {
				if _, err := w.Next(ctx); err != nil {
					return
				}
			}
		}
		for range 3 {
			l.append("a")
		}
		readAll(fast)
		expect(2, 300)
		readAll(slow)
		expect(2, 0)
		fast.Close()
		expect(1, 0)
	})
}
