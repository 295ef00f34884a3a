package postgres

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/cursor"
)

// position is a place in the store's history, as a set of changes: those that old sees, and those of until whose sequence number
// is at most seq.
//
// A poll reads what became visible between two snapshots, in the order of sequence numbers, so the place of an event is (old,
// until, seq). Between polls it is old alone.
type position struct {
	old   *snapshot
	until *snapshot // nil between polls
	seq   int64
	xid   uint64 // of an event, its transaction; no part of the place
}

// contains tells whether the change with this transaction and sequence number is part of the set.
func (p *position) contains(xid uint64, seq int64) bool {
	return p.old.sees(xid) || p.until != nil && seq <= p.seq && p.until.sees(xid)
}

// with returns next with all of p added. Everything that p has of until is in next, because a watch passes a poll's events in
// their order.
func (p position) with(next position) position {
	next.xid = 0
	next.old = next.old.union(p.old)
	return next
}

// cursor returns the position as a token: its snapshots as text, since that is what Postgres promises to keep, and the
// sequence number.
func (p position) cursor(store cursor.StoreID) string {
	text := func(s *snapshot) string {
		if s == nil {
			return ""
		}
		return s.String()
	}
	payload := binary.AppendVarint(nil, p.seq)
	payload = append(payload, strings.Join([]string{text(p.old), text(p.until)}, ";")...)
	return cursor.Encode(cursor.Watch, store, payload)
}

// parseCursor undoes cursor.
func parseCursor(store cursor.StoreID, token string) (position, error) {
	payload, err := cursor.Decode(cursor.Watch, store, token)
	if err != nil {
		return position{}, err
	}
	invalid := fmt.Errorf("%w: this is no cursor", storage.ErrInvalid)
	seq, n := binary.Varint(payload)
	if n <= 0 {
		return position{}, invalid
	}
	parts := strings.Split(string(payload[n:]), ";")
	if len(parts) != 2 {
		return position{}, invalid
	}
	p := position{seq: seq}
	for i, to := range []**snapshot{&p.old, &p.until} {
		if parts[i] == "" && i > 0 {
			continue
		}
		if *to, err = parseSnapshot(parts[i]); err != nil {
			return position{}, invalid
		}
	}
	return p, nil
}
