package faults

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/ashlar-dev/storage/conformance/faults/proxy"
)

// Connection returns the faults of connections through a proxy: Cut, Delay, Throttle and LoseAnswer. Traps match requests that
// contain one of the patterns; without patterns, KeyPattern.
func Connection(p *proxy.Proxy, patterns ...string) []Fault {
	if len(patterns) == 0 {
		patterns = []string{KeyPattern}
	}
	pattern := func(random *rand.Rand) []byte { return []byte(patterns[random.IntN(len(patterns))]) }
	at := "connection " + p.Addr()
	resume := func(context.Context) error { p.Resume(); return nil }
	return []Fault{
		{Kind: Cut, Weight: 3, Touches: at, Inject: func(_ context.Context, random *rand.Rand) (func(context.Context) error, error) {
			if random.IntN(2) == 0 {
				p.Cut()
				return nil, nil
			}
			p.Refuse()
			return resume, nil
		}},
		{Kind: Delay, Weight: 3, Touches: at, Inject: func(context.Context, *rand.Rand) (func(context.Context) error, error) {
			p.Stall()
			return resume, nil
		}},
		{Kind: Throttle, Weight: 1, Touches: at + " rate", Inject: func(_ context.Context, random *rand.Rand) (func(context.Context) error, error) {
			p.SetRate(20_000 + random.IntN(200_000))
			return func(context.Context) error { p.SetRate(0); return nil }, nil
		}},
		{Kind: LoseAnswer, Weight: 6, Touches: at + " traps", Inject: func(_ context.Context, random *rand.Rand) (func(context.Context) error, error) {
			traps := []*proxy.Trap{p.CutAnswer(pattern(random))}
			switch random.IntN(4) {
			case 0:
				traps = append(traps, p.CutAnswerAfter(pattern(random)))
			case 1:
				traps = append(traps, p.CutRequest(pattern(random)))
			case 2: // many requests share the connection, so the server needs some time to reach this one
				hold := p.HoldAnswer(pattern(random))
				time.AfterFunc(time.Duration(random.Int64N(int64(300*time.Millisecond))), hold.Cut)
				traps = append(traps, hold)
			}
			return func(context.Context) error {
				for _, t := range traps {
					t.Disarm()
					t.Cut()
				}
				return nil
			}, nil
		}},
	}
}
