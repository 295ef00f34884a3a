package serve

import (
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// budget bounds the bytes of answers that wait for clients to read them, of all callers together and of each caller.
type budget struct {
	total, each int64

	mu      sync.Mutex
	used    int64
	callers map[string]int64 // by the name of the token; only callers with bytes
}

// newBudget returns a budget that limits each caller to a quarter. Without tokens there is one caller, which can use all.
func newBudget(total int64, tokens bool) *budget {
	b := &budget{total: total, each: total, callers: map[string]int64{}}
	if tokens {
		b.each = total / 4
	}
	return b
}

// errUnread refuses an answer beyond the budget.
var errUnread = status.Error(codes.ResourceExhausted, "too many bytes of answers wait for their clients: list in smaller pages, or retry later")

// check fails with ResourceExhausted if a caller has used up the budget.
func (b *budget) check(caller string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used >= b.total || b.callers[caller] >= b.each {
		return errUnread
	}
	return nil
}

// reserve adds bytes of a caller. It fails with ResourceExhausted if they exceed the budget, unless force is set.
func (b *budget) reserve(caller string, bytes int64, force bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !force && (b.used+bytes > b.total || b.callers[caller]+bytes > b.each) {
		return errUnread
	}
	b.used += bytes
	b.callers[caller] += bytes
	return nil
}

// release removes bytes that reserve has added.
func (b *budget) release(caller string, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= bytes
	if b.callers[caller] -= bytes; b.callers[caller] == 0 {
		delete(b.callers, caller)
	}
}

// bufferedBytes returns the bytes of all callers.
func (b *budget) bufferedBytes() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return float64(b.used)
}
