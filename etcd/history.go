package etcd

import (
	"context"
	"errors"
	"time"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
)

// history reads changes of the past through one watch of etcd, which it keeps from page to page. To begin a watch far behind
// costs the server a look at all that came since: 40,000 changes took 108 s by pages of 500 with a watch for each, and take 3 s so.
type history struct {
	b      *handle
	filter *key.Filter
	at     position
	life   context.Context // ends with Close, or with the backend
	cancel context.CancelFunc

	stream *stream // nil: to be begun at next
	next   int64   // the revision that the reading has come to

	// What a call that failed leaves to the one after it, so that a connection which breaks again and again holds up nobody
	// for ever: a page takes several answers in a row, and whoever began each time with the first might never see the last.
	newest int64    // until where to read; 0: to be asked for
	read   []*event // after at and before next, and not handed out: nobody has proven yet that none is missing
	size   int      // their bytes
}

// silence is how long a page may wait for the next response. A server that looks at much history takes its time.
const silence = time.Minute

// History implements driver.Source.
func (s *source) History(from position, filter *key.Filter) driver.History[position] {
	h := &history{b: s.b, filter: filter, at: from, next: from.rev}
	if from.key == endKey {
		h.next++
	}
	h.life, h.cancel = context.WithCancel(s.b.life)
	return h
}

// Close implements driver.History.
func (h *history) Close() { h.cancel() }

// Page implements driver.History. A page ends with a whole response of the server, or a fragment of one: it is in memory anyway.
func (h *history) Page(ctx context.Context, limit int) (events []*event, end position, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.b.opts.Outage)
	defer cancel()
	ctx, done, err := h.b.begin(ctx)
	if err != nil {
		return nil, h.at, false, err
	}
	defer done()
	asked := h.newest == 0
	if asked {
		if h.newest, err = h.newestSince(ctx, h.at.rev); err != nil {
			return nil, h.at, false, err
		}
	}
	if h.next > h.newest && h.next == h.first() {
		end := endOf(h.newest)
		h.newest = 0
		return nil, end, false, nil
	}
	if err = h.fill(ctx, limit); err != nil {
		h.drop()
		if h.next == h.first() || errors.Is(err, storage.ErrCompacted) {
			return nil, h.at, false, translate(err)
		}
	}
	if err := h.b.kept(ctx, h.first()-1); err != nil {
		return nil, h.at, false, translate(err)
	}
	// That newest was the newest state during this call is known only if this call asked.
	more = !asked || h.next <= h.newest
	events, h.at = h.read, endOf(h.next-1)
	h.newest, h.read, h.size = 0, nil, 0
	return events, h.at, more, nil
}

// first is the first revision of which something is still to be handed out.
func (h *history) first() int64 {
	if h.at.key == endKey {
		return h.at.rev + 1
	}
	return h.at.rev
}

// newestSince asks for the newest revision, which cannot be older than one that was seen.
func (h *history) newestSince(ctx context.Context, seen int64) (int64, error) {
	newest, err := h.b.revision(ctx)
	switch {
	case err != nil:
		return 0, err
	case newest < seen:
		return 0, errWentBack
	}
	return newest, nil
}

// fill reads until the newest revision, or until there are enough events or bytes.
func (h *history) fill(ctx context.Context, limit int) (err error) {
	for h.next <= h.newest && len(h.read) < limit && h.size < driver.PageBytes {
		if h.stream == nil {
			lower, upper := h.b.layout.span(h.filter)
			if h.stream, err = h.b.openStream(h.life, lower, upper, h.next); err != nil {
				return err
			}
		}
		if err := h.take(ctx); err != nil {
			return err
		}
	}
	return nil
}

// take takes a response.
func (h *history) take(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	resp, err := h.stream.await(ctx)
	if err != nil {
		return err
	}
	if len(resp.Events) == 0 {
		h.next = max(h.next, resp.Header.Revision+1)
		if h.next <= h.newest { // the member is behind, or the cluster has lost what it had
			_, err = h.newestSince(ctx, h.newest)
			return err
		}
	}
	byRevision(resp.Events, func(rev int64, changes []*mvccpb.Event) bool {
		if err = h.b.addPrevious(ctx, rev, changes); err != nil {
			return false
		}
		var found []*event
		if found, err = h.b.layout.events(rev, changes); err != nil {
			return false
		}
		for _, ev := range found {
			if h.at.less(ev.At) {
				h.read = append(h.read, ev)
				h.size += ev.Size
			}
		}
		h.next = rev + 1
		return true
	})
	return err
}

// drop gives up the stream: the next page begins another.
func (h *history) drop() {
	if h.stream != nil {
		h.stream.close()
		h.stream = nil
	}
}
