//go:build integration

package testenv

import (
	"context"
	"testing"
	"time"
)

// A frozen server answers nothing until it is woken, and then goes on.
func TestFreeze(t *testing.T) {
	t.Parallel()
	member, emulator, postgres := StartEtcd(t), StartDynamoDB(t), StartPostgres(t)
	connected := postgres.Connect(t)
	for _, c := range []struct {
		name         string
		freeze, wake func(testing.TB)
		answers      func(ctx context.Context) error
	}{
		{"etcd", member.Freeze, member.Wake, member.ready},
		{"DynamoDB", emulator.Freeze, emulator.Wake, emulator.ready},
		{"Postgres", postgres.Freeze, postgres.Wake, connected.Ping},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range 3 {
				c.freeze(t)
				answer := make(chan error, 1)
				go func() {
					ctx, cancel := context.WithTimeout(context.Background(), patience)
					defer cancel()
					answer <- c.answers(ctx)
				}()
				select {
				case err := <-answer:
					t.Fatalf("a frozen server answers: %v", err)
				case <-time.After(300 * time.Millisecond):
				}
				c.wake(t)
				if err := <-answer; err != nil {
					t.Errorf("a server that was woken does not answer: %v", err)
				}
			}
		})
	}
}
