package etcd

import (
	"context"
	"time"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/ashlar-dev/storage/internal/feed"
	"github.com/ashlar-dev/storage/internal/key"
)

// history reads changes of the past through one watch of etcd, which it keeps from page to page. To begin a watch far behind
// costs the server a look at all that came since: 40,000 changes took 108 s by pages of 500 with a watch for each, and take 3 s so.
type history struct {
	b      *Backend
	filter *key.Filter
	at     position
	life   context.Context // ends with Close, or with the backend
	cancel context.CancelFunc

	stream *stream // nil: to be begun
	next   int64   // the revision that the stream has come to
}

// silence is how long a page may wait for the next response. A server that looks at much history takes its time.
const silence = time.Minute

// History implements feed.Source.
func (s *source) History(from position, filter *key.Filter) feed.History[position] {
	h := &history{b: s.b, filter: filter, at: from}
	h.life, h.cancel = context.WithCancel(s.b.life)
	return h
}

// Close implements feed.History.
func (h *history) Close() { h.cancel() }

// Page implements feed.History. A page ends with a whole response of the server, or a fragment of one: it is in memory anyway.
func (h *history) Page(ctx context.Context, limit int) (events []*event, end position, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.b.opts.Outage)
	defer cancel()
	ctx, done, err := h.b.begin(ctx)
	if err != nil {
		return nil, h.at, false, err
	}
	defer done()
	newest, err := h.b.revision(ctx)
	switch {
	case err != nil:
		return nil, h.at, false, err
	case newest < h.at.rev:
		return nil, h.at, false, errWentBack
	}
	first := h.at.rev
	if h.at.key == endKey {
		first++
	}
	if first > newest {
		return nil, endOf(newest), false, nil
	}
	events, err = h.read(ctx, first, newest, limit)
	if err == nil {
		err = h.b.kept(ctx, first-1)
	}
	if err != nil {
		h.drop()
		return nil, h.at, false, translate(err)
	}
	h.at = endOf(h.next - 1)
	return events, h.at, h.next <= newest, nil
}

// read reads from a revision until another that exists, or until there are enough events or bytes.
func (h *history) read(ctx context.Context, first, newest int64, limit int) (events []*event, err error) {
	if h.stream == nil {
		lower, upper := h.b.layout.span(h.filter)
		if h.stream, err = h.b.openStream(h.life, lower, upper, first); err != nil {
			return nil, err
		}
		h.next = first
	}
	for size := 0; h.next <= newest && len(events) < limit && size < feed.PageBytes; {
		found, err := h.take(ctx)
		if err != nil {
			return nil, err
		}
		for _, ev := range found {
			if h.at.less(ev.At) {
				events = append(events, ev)
				size += ev.Size
			}
		}
	}
	return events, nil
}

// take takes a response.
func (h *history) take(ctx context.Context) (events []*event, err error) {
	ctx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	resp, err := h.stream.await(ctx)
	if err != nil {
		return nil, err
	}
	if len(resp.Events) == 0 {
		h.next = max(h.next, resp.Header.Revision+1)
	}
	byRevision(resp.Events, func(rev int64, changes []*mvccpb.Event) bool {
		var found []*event
		if found, err = h.b.layout.events(rev, changes); err != nil {
			return false
		}
		events = append(events, found...)
		h.next = rev + 1
		return true
	})
	return events, err
}

// drop gives up the stream: the next page begins another.
func (h *history) drop() {
	if h.stream != nil {
		h.stream.close()
		h.stream = nil
	}
}
