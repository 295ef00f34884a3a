//go:build integration

package env

import (
	"context"
	"sync"
	"testing"
	"time"
)

// A frozen server does not answer until it is woken.
func TestFreeze(t *testing.T) {
	t.Parallel()
	member, emulator, postgres := StartEtcd(t), StartDynamoDB(t), StartPostgres(t)
	connected := postgres.Connect(t)
	for _, c := range []struct {
		name         string
		callers      int // concurrent callers
		freeze, wake func(testing.TB)
		answers      func(ctx context.Context) error
	}{
		{"etcd", 16, member.Freeze, member.Wake, member.ready},
		{"DynamoDB", 16, emulator.Freeze, emulator.Wake, emulator.ready},
		{"Postgres", 0, postgres.Freeze, postgres.Wake, connected.Ping},
	} {
		t.Run(c.name, func(t *testing.T) {
			busy(t, c.callers, c.answers)
			for range 5 {
				c.freeze(t)
				answer := make(chan error, 1)
				go func() {
					ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
					defer cancel()
					answer <- c.answers(ctx)
				}()
				select {
				case err := <-answer:
					t.Fatalf("a frozen server answered: %v", err)
				case <-time.After(300 * time.Millisecond):
				}
				c.wake(t)
				if err := <-answer; err != nil {
					t.Errorf("a woken server did not answer: %v", err)
				}
			}
		})
	}
}

// busy keeps a server answering until the test ends, because an idle server stops immediately.
func busy(t *testing.T, callers int, answers func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	var calls sync.WaitGroup
	for range callers {
		calls.Go(func() {
			for ctx.Err() == nil {
				_ = answers(ctx) // it may be frozen
			}
		})
	}
	t.Cleanup(func() { cancel(); calls.Wait() })
}
