package streams

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Position is a point in the store's history: the progress in each shard of the stream. A shared Position is never changed.
//
// A position contains more than the open shards, so that a reader that returns a day later can continue. A shard that was read to
// its end stays until all of its children are at their end too (or DynamoDB has deleted it). Children that are not in the position
// are still to be read, from their beginning.
type Position struct {
	stream string // ARN
	shards []shardPosition

	asOf        time.Time // by AWS's clock: everything acknowledged before is in the position
	proofNumber uint64    // of the end of a batch: the reader's last proof
	baseline    *Baseline // of a snapshot

	// For events: the record's place, which is not yet in shards, and the count of its state.
	shard, seq   string
	count        uint64
	creationTime time.Time
}

// shardPosition is the progress in one shard: "" at its beginning, the number of the last record, ended, or a time of AWS's clock
// in Unix seconds: from its beginning, without the records before that time.
type shardPosition struct{ shard, seq string }

const shardEnd = "$"

// apart is the maximum difference between the time of a record and the time of its write's acknowledgment, both by AWS's clock. AWS
// calls the former approximate, and the emulator rounds it down to the minute.
const apart = 2 * time.Minute

// since returns the progress in a shard if everything acknowledged before t is known.
func since(t time.Time) string { t = t.Add(-apart); return "@" + strconv.FormatInt(t.Unix(), 10) }

// sinceTime is the inverse of since.
func sinceTime(seq string) (time.Time, bool) {
	if !strings.HasPrefix(seq, "@") {
		return time.Time{}, false
	}
	n, err := strconv.ParseInt(seq[1:], 10, 64)
	return time.Unix(n, 0), err == nil
}

// isRecordNumber reports whether seq is the number of a record.
func isRecordNumber(seq string) bool { return seq != "" && seq != shardEnd && seq[0] != '@' }

// rank orders the kinds of progress.
func rank(seq string) int {
	switch {
	case seq == "":
		return 0
	case seq[0] == '@':
		return 1
	case seq == shardEnd:
		return 3
	}
	return 2
}

// compareSeq orders the progress in one shard. Sequence numbers are decimal numbers of up to 40 digits.
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

// isFurther reports whether a reader at seq has read more of a shard than a reader at from.
func isFurther(seq, from string) bool {
	return (isRecordNumber(seq) || seq == shardEnd) && compareSeq(seq, from) > 0
}

func (p *Position) find(shard string) (int, bool) {
	return slices.BinarySearchFunc(p.shards, shard, func(pl shardPosition, shard string) int { return strings.Compare(pl.shard, shard) })
}

func (p *Position) get(shard string) (seq string, there bool) {
	if i, ok := p.find(shard); ok {
		return p.shards[i].seq, true
	}
	return "", false
}

// with returns p with progress in one shard.
func (p *Position) with(shard, seq string) *Position {
	q := *p
	i, there := p.find(shard)
	if there {
		q.shards = slices.Clone(p.shards)
		q.shards[i].seq = seq
	} else {
		q.shards = slices.Insert(slices.Clone(p.shards), i, shardPosition{shard, seq})
	}
	return &q
}

// without returns p without one shard.
func (p *Position) without(shard string) *Position {
	i, there := p.find(shard)
	if !there {
		return p
	}
	q := *p
	q.shards = slices.Delete(slices.Clone(p.shards), i, i+1)
	return &q
}

// within reports whether o has the same shards as p, and in each the same progress or a later record.
func (p *Position) within(o *Position) bool {
	if len(p.shards) != len(o.shards) {
		return false
	}
	for i := range p.shards {
		a, b := p.shards[i], o.shards[i]
		if a.shard != b.shard || a.seq != b.seq && !isFurther(b.seq, a.seq) {
			return false
		}
	}
	return true
}

// isAfter reports whether p is ahead of from, by the records it has read or by a proof.
func (p *Position) isAfter(from *Position) bool {
	return p.proofNumber != from.proofNumber || p.asOf.After(from.asOf) || len(p.shards) != len(from.shards) || !p.within(from)
}

// afterEvent returns the position after an event, from the event's position.
func (p *Position) afterEvent() *Position {
	q := p.with(p.shard, p.seq)
	q.shard, q.seq, q.count, q.creationTime = "", "", 0, time.Time{}
	return q
}

// active returns the number of shards that are not at their end.
func (p *Position) active() int {
	n := 0
	for _, pl := range p.shards {
		if pl.seq != shardEnd {
			n++
		}
	}
	return n
}

// isExact reports whether the progress in each shard is a number, its beginning or its end, and not only a time.
func (p *Position) isExact() bool {
	return !slices.ContainsFunc(p.shards, func(pl shardPosition) bool { return rank(pl.seq) == 1 })
}

// AsOf returns a moment, by AWS's clock. Everything acknowledged before it is in the position.
func (p *Position) AsOf() time.Time { return p.asOf }

// Count returns the count of the state after an event, from the event's position.
func (p *Position) Count() uint64 { return p.count }

// Encode returns the position as bytes, for cursors and continue tokens.
func (p *Position) Encode() []byte {
	b := protowire.AppendString(nil, p.stream)
	b = protowire.AppendVarint(b, protowire.EncodeZigZag(p.asOf.Unix()))
	for _, pl := range p.shards {
		b = protowire.AppendString(protowire.AppendString(b, pl.shard), pl.seq)
	}
	return b
}

// DecodePosition is the inverse of Encode.
func DecodePosition(b []byte) (*Position, error) {
	p := &Position{}
	var err error
	if p.stream, b, err = cutText(b); err != nil {
		return nil, err
	}
	unix, n := protowire.ConsumeVarint(b)
	if n < 0 {
		return nil, errors.New("truncated")
	}
	p.asOf, b = time.Unix(protowire.DecodeZigZag(unix), 0), b[n:]
	for len(b) > 0 {
		var pl shardPosition
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

func cutText(b []byte) (text string, rest []byte, err error) {
	text, n := protowire.ConsumeString(b)
	if n < 0 {
		return "", nil, protowire.ParseError(n)
	}
	return text, b[n:], nil
}

func (p *Position) String() string {
	return fmt.Sprintf("%s%v", p.stream, p.shards)
}

// orBeginnings returns p with the beginning of each shard of which p has only a time and end the beginning: the relay that published end
// reads these shards again.
func (p *Position) orBeginnings(end *Position) *Position {
	for _, pl := range p.shards {
		if seq, there := end.get(pl.shard); there && seq == "" && rank(pl.seq) == 1 {
			p = p.with(pl.shard, "")
		}
	}
	return p
}
