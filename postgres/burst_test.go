package postgres

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestPaceOfPolls checks when a feed polls next: promptly without other handles, whatever it reads, and otherwise later the more it reads.
func TestPaceOfPolls(t *testing.T) {
	t.Parallel()
	const took, latency = time.Millisecond, 20 * time.Millisecond
	now := time.Now()
	ago := func(d time.Duration) *time.Time { at := now.Add(-d); return &at }
	for name, c := range map[string]struct {
		heard, marked *time.Time
		found         int
		pause, poll   time.Duration // poll: 0 without a poll of its own
		gathers       bool
	}{
		"a lone handle":                          {found: 1000, pause: took},
		"a lone handle, after the others":        {heard: ago(peerTTL), found: 1000, pause: took},
		"nothing found":                          {heard: ago(0), pause: took},
		"one change":                             {heard: ago(0), found: 1, pause: took},
		"a few changes":                          {heard: ago(0), found: 5, pause: 5 * took},
		"many changes":                           {heard: ago(0), found: 1000, pause: latency, poll: latency, gathers: true},
		"a mark":                                 {heard: ago(0), marked: ago(0), pause: took, poll: latency},
		"a mark, just before the window's end":   {heard: ago(0), marked: ago(burstWindow - 1), pause: took, poll: latency},
		"a mark, after the window":               {heard: ago(0), marked: ago(burstWindow), pause: took},
		"a mark, while the feed reads a lot":     {heard: ago(0), marked: ago(0), found: 1000, pause: latency, poll: latency, gathers: true},
		"a mark of this handle, without answers": {marked: ago(0), found: 1000, pause: took, poll: latency},
	} {
		var b bursts
		b.heardAt.Store(c.heard)
		b.markedAt.Store(c.marked)
		want := pace{proofAt: now.Add(took), requestAt: now.Add(c.pause)}
		if c.poll > 0 {
			want.pollAt = now.Add(c.poll)
		}
		if got := b.pace(now, took, c.found, latency); got != want || b.gathers.Load() != c.gathers {
			t.Errorf("%s: proof after %v, request after %v, poll at %v, gathers: %v; expected %v, %v, %v, %v", name,
				got.proofAt.Sub(now), got.requestAt.Sub(now), got.pollAt, b.gathers.Load(), took, c.pause, want.pollAt, c.gathers)
		}
	}
}

// TestSilenceEndsBeforeTheWindow waits for the silence after a mark. It ends while the receivers still poll by themselves, and a later mark
// prolongs it.
func TestSilenceEndsBeforeTheWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b bursts
		await := func() (waited time.Duration) {
			began := time.Now()
			if err := b.awaitSilence(t.Context()); err != nil {
				t.Fatal(err)
			}
			return time.Since(began)
		}
		if waited := await(); waited > 0 {
			t.Errorf("without a mark, the silence was %v", waited)
		}
		b.hear("other"+burstMark, time.Now())
		time.AfterFunc(burstSilence/2, func() { b.hear("other"+burstMark, time.Now()) })
		if waited := await(); waited < 3*burstSilence/2 {
			t.Errorf("the silence was %v, expected it to last for %v after the second mark", waited, burstSilence)
		}
		if !b.inWindow(time.Now()) {
			t.Error("the receivers have stopped their polls before the silence ended")
		}
		time.Sleep(burstWindow) //nolint:forbidigo // of the bubble
		b.hear("other", time.Now())
		if waited := await(); waited > 0 {
			t.Errorf("after a notification without a mark, the silence was %v", waited)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		b.hear("other"+burstMark, time.Now())
		if b.awaitSilence(ctx) == nil {
			t.Error("a closed handle waited for the end of the silence")
		}
	})
}

// TestProofDoesNotGather requests polls of a feed that gathers. A notification does not end the pause, the request of a proof does.
func TestProofDoesNotGather(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in := &inbox{signal: make(chan struct{}, 1)}
		r := &run{source: &source{history: &history{}}, in: in}
		r.next = pace{proofAt: time.Now(), requestAt: time.Now().Add(time.Hour), pollAt: time.Now().Add(time.Hour)}
		done := make(chan error, 1)
		go func() { done <- r.await(t.Context(), 0, nil) }()
		for range 3 {
			in.add(nil, true)
			synctest.Wait() // a request that is read after the proof's would end the pause like the proof's
			if len(done) > 0 {
				t.Fatalf("a notification ended the pause: %v", <-done)
			}
		}
		began := time.Now()
		r.history.request(0)
		in.add(nil, true)
		if err := <-done; err != nil || time.Since(began) > 0 {
			t.Errorf("after the request of a proof, the pause lasted for %v and ended with %v", time.Since(began), err)
		}
	})
}
