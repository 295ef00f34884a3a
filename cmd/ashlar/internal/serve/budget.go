package serve

import (
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
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

// check fails with ResourceExhausted if an answer of some bytes to a caller exceeded the budget.
func (b *budget) check(caller string, bytes int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+bytes > b.total || b.callers[caller]+bytes > b.each {
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

// bufferedDesc describes the metric of a budget.
var bufferedDesc = prometheus.NewDesc("ashlar_server_buffered_bytes", "Bytes of answers that wait for their clients, by the caller's token.", []string{"caller"}, nil)

// Describe implements prometheus.Collector.
func (b *budget) Describe(to chan<- *prometheus.Desc) { to <- bufferedDesc }

// Collect implements prometheus.Collector. There is always a value for callers without a token.
func (b *budget) Collect(to chan<- prometheus.Metric) {
	b.mu.Lock()
	callers := map[string]int64{"": 0}
	maps.Copy(callers, b.callers)
	b.mu.Unlock()
	for caller, bytes := range callers {
		to <- prometheus.MustNewConstMetric(bufferedDesc, prometheus.GaugeValue, float64(bytes), caller)
	}
}
