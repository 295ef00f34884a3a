package queue_test

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-dev/storage/internal/queue"
)

func get(t *testing.T, q *queue.Queue[string]) string {
	t.Helper()
	k, ok := q.Get()
	if !ok {
		t.Fatal("the queue is closed")
	}
	return k
}

func TestKeyRunsOnOneWorkerAtATime(t *testing.T) {
	t.Parallel()
	q := queue.New[string](queue.Options{})
	q.Add("a")
	q.Add("a")
	get(t, q)
	q.Add("a")
	q.Add("b")
	if k := get(t, q); k != "b" {
		t.Fatalf("got %q while it runs", k)
	}
	q.Done("a", queue.Outcome{})
	if k := get(t, q); k != "a" {
		t.Fatalf("got %q, expected the key that was added during its run", k)
	}
	q.Done("a", queue.Outcome{})
	if s := q.Stats(); s.Normal+s.Low+s.Delayed != 0 || s.Running != 1 {
		t.Fatalf("stats: %+v", s)
	}
}

func TestBackoffDoublesUpToItsMaximum(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := queue.New[string](queue.Options{})
		defer q.Close()
		q.Add("a")
		want := 5 * time.Millisecond
		for n := range 80 { // shifting by more than 63 bits must not make the delay zero
			get(t, q)
			q.Done("a", queue.Outcome{Failed: true})
			began := time.Now()
			get(t, q)
			if d := time.Since(began); d < want*4/5 || d > want {
				t.Fatalf("delay %v after failure %d, expected %v less up to a fifth", d, n+1, want)
			}
			want = min(2*want, 1000*time.Second)
			q.Add("a") // the next run starts at once and keeps the count
			q.Done("a", queue.Outcome{Failed: true})
			want = min(2*want, 1000*time.Second)
		}
	})
}

func TestRequeueResetsBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := queue.New[string](queue.Options{})
		defer q.Close()
		q.Add("a")
		for range 10 {
			get(t, q)
			q.Done("a", queue.Outcome{Failed: true})
		}
		get(t, q)
		q.Done("a", queue.Outcome{After: time.Hour})
		began := time.Now()
		get(t, q)
		if d := time.Since(began); d != time.Hour {
			t.Fatalf("delay %v, expected an hour", d)
		}
		q.Done("a", queue.Outcome{Failed: true})
		began = time.Now()
		get(t, q)
		if d := time.Since(began); d > 5*time.Millisecond {
			t.Fatalf("delay %v, expected the first one", d)
		}
	})
}

// A requeue after the longest possible time is not due at once.
func TestRequeueAfterALongTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := queue.New[string](queue.Options{})
		defer q.Close()
		time.Sleep(time.Second)
		q.Add("a")
		get(t, q)
		q.Done("a", queue.Outcome{After: math.MaxInt64})
		q.Add("b")
		if k := get(t, q); k != "b" {
			t.Fatalf("got %q", k)
		}
		q.Done("b", queue.Outcome{After: time.Hour})
		if k := get(t, q); k != "b" {
			t.Fatalf("got %q after an hour", k)
		}
	})
}

func TestEventMakesDelayedKeyReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := queue.New[string](queue.Options{})
		defer q.Close()
		q.Add("a")
		get(t, q)
		q.Done("a", queue.Outcome{After: time.Hour})
		began := time.Now()
		q.Add("a")
		get(t, q)
		if d := time.Since(began); d != 0 {
			t.Fatalf("delay %v, expected none", d)
		}
		q.Done("a", queue.Outcome{})
		if s := q.Stats(); s.Delayed != 0 {
			t.Fatal("the old plan is still there")
		}
	})
}

func TestLowKeysFinishUnderLoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := queue.New[string](queue.Options{})
		defer q.Close()
		low := []string{"l1", "l2", "l3", "l4"}
		for _, k := range low {
			q.AddLow(k)
		}
		q.Add("l4") // an event raises it
		q.Add("n")
		var order []string
		for i := range 12 {
			k := get(t, q)
			order = append(order, k)
			q.Done(k, queue.Outcome{})
			q.Add("n") // constant load
			if i == 2 {
				time.Sleep(5 * time.Second)
			}
		}
		if want := []string{"l4", "n", "n", "l1", "n", "l2", "n", "l3", "n", "n", "n", "n"}; !slices.Equal(order, want) {
			t.Fatalf("order %v, expected %v", order, want)
		}
	})
}

func TestDropKeepsRunningKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := queue.New[string](queue.Options{})
		defer q.Close()
		for _, k := range []string{"running", "delayed", "ready", "other"} {
			q.Add(k)
		}
		get(t, q)
		get(t, q)
		q.Done("delayed", queue.Outcome{After: time.Minute})
		q.Add("running")
		q.AddLow("low")
		q.Drop(func(k string) bool { return k != "other" })
		q.Done("running", queue.Outcome{})
		if k := get(t, q); k != "other" {
			t.Fatalf("got %q", k)
		}
		q.Done("other", queue.Outcome{})
		time.Sleep(time.Hour)
		if s := q.Stats(); s != (queue.Stats{}) {
			t.Fatalf("stats: %+v", s)
		}
	})
}

func TestCloseEndsWaitingWorkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := queue.New[string](queue.Options{})
		ended := make(chan bool)
		go func() {
			_, ok := q.Get()
			ended <- ok
		}()
		synctest.Wait()
		q.Close()
		if <-ended {
			t.Fatal("Get returned a key")
		}
		q.Add("a")
		if s := q.Stats(); s.Normal != 0 {
			t.Fatal("a key was added after Close")
		}
	})
}
