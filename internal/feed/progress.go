package feed

import (
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"

	"github.com/ashlar-dev/storage/telemetry"
)

// progress compares the log of a run with the part of it that a watch has read, in bytes. The methods of nil do nothing.
type progress struct {
	publishedBytes atomic.Pointer[atomic.Int64] // of the watch's run
	read           atomic.Int64
}

// begin begins at the end of a run's log. A watch that continues in history is further behind, by an unknown number of bytes.
func (p *progress) begin(published *atomic.Int64) {
	if p != nil {
		p.read.Store(published.Load())
		p.publishedBytes.Store(published)
	}
}

// reach records that the watch has read the log up to a number of bytes.
func (p *progress) reach(read int64) {
	if p != nil {
		p.read.Store(read)
	}
}

// openWatches is the set of open watches of a feed with telemetry. Nil is no set.
type openWatches struct {
	mu  sync.Mutex
	all map[*progress]struct{}
}

// newOpenWatches returns a set that the recorder observes, or nil without a recorder.
func newOpenWatches(r *telemetry.Recorder) *openWatches {
	if r == nil {
		return nil
	}
	o := &openWatches{all: map[*progress]struct{}{}}
	r.Observe(telemetry.Watches, func(observe func(float64, ...attribute.KeyValue)) {
		count, _ := o.measure()
		observe(float64(count))
	})
	r.Observe(telemetry.WatchBacklog, func(observe func(float64, ...attribute.KeyValue)) {
		_, backlog := o.measure()
		observe(float64(backlog))
	})
	return o
}

// add adds a watch of a run to the set.
func (o *openWatches) add(published *atomic.Int64) *progress {
	if o == nil {
		return nil
	}
	p := &progress{}
	p.begin(published)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all[p] = struct{}{}
	return p
}

func (o *openWatches) remove(p *progress) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.all, p)
}

// measure returns the number of watches, and the bytes that the slowest one has not read.
func (o *openWatches) measure() (count int, backlog int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for p := range o.all {
		backlog = max(backlog, p.publishedBytes.Load().Load()-p.read.Load())
	}
	return len(o.all), backlog
}
