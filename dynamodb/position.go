package dynamodb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// position is a place in the store's history: how far each shard of the stream is read. It is never changed once it is shared.
//
// Positions say more than which shards are open, so that a reader who comes back a day later finds the way: a shard that was
// read to its end stays until all of its children are at their end, too (or DynamoDB has forgotten it), and those of its children
// that are not in the position are still to be read, from their beginning.
type position struct {
	stream string // ARN
	shards []place

	asOf   time.Time // by AWS's clock: everything acknowledged before is in the position
	proven uint64    // of the end of a batch: the reader's last proof
	joined *shown    // of a snapshot: what it showed

	// Of an event: where it stands, which is not in shards yet, and the count of its stamp.
	shard, seq string
	count      uint64
}

// place is how far one shard is read: "" from its beginning, the number of the last record, ended, or since a time of AWS's clock
// in unix seconds: from its beginning, but for the records before that.
type place struct{ shard, seq string }

const ended = "$"

// apart is how far the time of a record may be from the time at which its write was acknowledged, both by AWS's clock: it is
// called approximate, and the emulator rounds it down to the minute.
const apart = 2 * time.Minute

// since is the place of a shard of which all that was acknowledged before t is known.
func since(t time.Time) string { t = t.Add(-apart); return "@" + strconv.FormatInt(t.Unix(), 10) }

// sinceTime undoes since.
func sinceTime(seq string) (time.Time, bool) {
	if !strings.HasPrefix(seq, "@") {
		return time.Time{}, false
	}
	n, err := strconv.ParseInt(seq[1:], 10, 64)
	return time.Unix(n, 0), err == nil
}

// numbered reports whether seq is the number of a record.
func numbered(seq string) bool { return seq != "" && seq != ended && seq[0] != '@' }

// rank orders the kinds of places.
func rank(seq string) int {
	switch {
	case seq == "":
		return 0
	case seq[0] == '@':
		return 1
	case seq == ended:
		return 3
	}
	return 2
}

// compareSeq orders places in one shard. Sequence numbers are decimal numbers of up to 40 digits.
func compareSeq(a, b string) int {
	if r := rank(a) - rank(b); r != 0 {
		return r
	}
	a, b = strings.TrimLeft(a, "@0"), strings.TrimLeft(b, "@0")
	if d := len(a) - len(b); d != 0 {
		return d
	}
	return strings.Compare(a, b)
}

func (p *position) find(shard string) (int, bool) {
	return slices.BinarySearchFunc(p.shards, shard, func(pl place, shard string) int { return strings.Compare(pl.shard, shard) })
}

func (p *position) get(shard string) (seq string, there bool) {
	if i, ok := p.find(shard); ok {
		return p.shards[i].seq, true
	}
	return "", false
}

// with returns p with one shard read further.
func (p *position) with(shard, seq string) *position {
	q := *p
	i, there := p.find(shard)
	if there {
		q.shards = slices.Clone(p.shards)
		q.shards[i].seq = seq
	} else {
		q.shards = slices.Insert(slices.Clone(p.shards), i, place{shard, seq})
	}
	return &q
}

// without returns p without one shard.
func (p *position) without(shard string) *position {
	i, there := p.find(shard)
	if !there {
		return p
	}
	q := *p
	q.shards = slices.Delete(slices.Clone(p.shards), i, i+1)
	return &q
}

// covers reports whether the record seq of a shard is part of p.
func (p *position) covers(l *lineage, shard, seq string) bool {
	if at, there := p.get(shard); there {
		return at == ended || numbered(at) && compareSeq(seq, at) <= 0
	}
	return l.precedes(shard, p)
}

// merge returns what both positions have read together.
func (p *position) merge(l *lineage, o *position) *position {
	if o.shard != "" {
		o = o.with(o.shard, o.seq)
	}
	q := *p
	q.shard, q.seq = "", ""
	if o.asOf.After(p.asOf) {
		q.asOf = o.asOf
	}
	if p.within(o) {
		q.shards = o.shards
		return &q
	}
	q.shards = make([]place, 0, max(len(p.shards), len(o.shards)))
	for _, a := range p.shards {
		switch b, there := o.get(a.shard); {
		case there && compareSeq(b, a.seq) > 0:
			q.shards = append(q.shards, place{a.shard, b})
		case there, !l.precedes(a.shard, o) && (a.seq != ended || l.knows(a.shard)):
			q.shards = append(q.shards, a)
		}
	}
	for _, b := range o.shards {
		if _, there := p.get(b.shard); !there && !l.precedes(b.shard, p) {
			q.shards = append(q.shards, b)
		}
	}
	slices.SortFunc(q.shards, func(a, b place) int { return strings.Compare(a.shard, b.shard) })
	return &q
}

// within reports whether o has the same shards as p, read at least as far.
func (p *position) within(o *position) bool {
	if len(p.shards) != len(o.shards) {
		return false
	}
	for i := range p.shards {
		if p.shards[i].shard != o.shards[i].shard || compareSeq(p.shards[i].seq, o.shards[i].seq) > 0 {
			return false
		}
	}
	return true
}

// encode is the payload of a cursor.
func (p *position) encode() []byte {
	b := appendText(nil, p.stream)
	b = binary.AppendVarint(b, p.asOf.Unix())
	for _, pl := range p.shards {
		b = appendText(appendText(b, pl.shard), pl.seq)
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func cutText(b []byte) (s string, rest []byte, err error) {
	n, w := binary.Uvarint(b)
	if w <= 0 || n > uint64(len(b)-w) {
		return "", nil, errors.New("truncated")
	}
	return string(b[w : w+int(n)]), b[w+int(n):], nil
}

// decodePosition undoes encode.
func decodePosition(b []byte) (*position, error) {
	p := &position{}
	var err error
	if p.stream, b, err = cutText(b); err != nil {
		return nil, err
	}
	unix, w := binary.Varint(b)
	if w <= 0 {
		return nil, errors.New("truncated")
	}
	p.asOf, b = time.Unix(unix, 0), b[w:]
	for len(b) > 0 {
		var pl place
		if pl.shard, b, err = cutText(b); err != nil {
			return nil, err
		}
		if pl.seq, b, err = cutText(b); err != nil {
			return nil, err
		}
		if n := len(p.shards); pl.shard == "" || n > 0 && p.shards[n-1].shard >= pl.shard {
			return nil, errors.New("shards out of order")
		}
		p.shards = append(p.shards, pl)
	}
	return p, nil
}

func (p *position) String() string {
	return fmt.Sprintf("%s%v", p.stream, p.shards)
}
