package postgres

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
)

// position is a place in the store's history: everything up to one change, and perhaps some that come later.
//
// It names a change that was read, never just a number: numbers that no visible change bears may be drawn again after a crash. The
// piece of that change's token shows whether it is still there, or the history is another one by now.
type position struct {
	revision int64
	place    int32
	piece    [pieceSize]byte
	ahead    []span // of changes that a listing saw before those below them were final
	view     view

	aheadPiece [pieceSize]byte // of the digest of the changes ahead
}

// view is how far a look in the database has shown a position to reach. It is knowledge about a server that runs, no part of a
// cursor: after a crash the server may draw numbers again.
type view struct {
	look  uint64 // looks are numbered as they begin
	last  int64  // the last number drawn then
	final int64  // everything up to this number is included
}

const pieceSize = 8

// span is a range of numbers, both ends included.
type span struct{ from, to int64 }

func compare(x, y *position) int {
	return cmp.Or(cmp.Compare(x.revision, y.revision), cmp.Compare(x.place, y.place))
}

// contains reports whether the change is included.
func (p *position) contains(change *position) bool {
	return compare(change, p) <= 0 || p.isAhead(change.revision)
}

// lastAhead is the highest number that is included ahead; 0 if there is none.
func (p *position) lastAhead() int64 {
	if len(p.ahead) == 0 {
		return 0
	}
	return p.ahead[len(p.ahead)-1].to
}

func (p *position) isAhead(revision int64) bool {
	_, found := slices.BinarySearchFunc(p.ahead, revision, func(s span, revision int64) int {
		switch {
		case s.to < revision:
			return -1
		case s.from > revision:
			return 1
		}
		return 0
	})
	return found
}

// reaches reports whether p includes everything that had been acknowledged when the last number drawn was target's and its look had
// not begun. Where the server has drawn fewer numbers since, it forgot some in a crash, and nobody was told of them.
func (p *position) reaches(target *position) bool {
	return p.view.look >= target.view.look && p.view.final >= min(target.view.last, p.view.last)
}

// with returns p with everything up to next added.
func (p position) with(next *position) position {
	if compare(next, &p) > 0 {
		p.revision, p.place, p.piece = next.revision, next.place, next.piece
	}
	if next.view.look >= p.view.look {
		p.view = next.view
	}
	if p.lastAhead() < p.revision { // not before: p may end inside a commit, and all of them are proven together
		p.ahead = nil
	}
	return p
}

// append appends the position as bytes.
func (p *position) append(payload []byte) []byte {
	payload = binary.AppendUvarint(payload, uint64(p.revision))
	payload = binary.AppendUvarint(payload, uint64(p.place))
	payload = append(payload, p.piece[:]...)
	if len(p.ahead) > 0 {
		payload = append(payload, p.aheadPiece[:]...)
	}
	var last int64
	for _, s := range p.ahead {
		payload = binary.AppendUvarint(payload, uint64(s.from-last))
		payload = binary.AppendUvarint(payload, uint64(s.to-s.from))
		last = s.to
	}
	return payload
}

// parsePosition undoes append.
func parsePosition(payload []byte) (p position, ok bool) {
	number := func(most uint64) int64 {
		v, n := binary.Uvarint(payload)
		if n <= 0 || v > most {
			ok = false
			return 0
		}
		payload = payload[n:]
		return int64(v)
	}
	ok = true
	p.revision = number(math.MaxInt64)
	p.place = int32(number(math.MaxInt32))
	if !ok || len(payload) < pieceSize {
		return p, false
	}
	payload = payload[copy(p.piece[:], payload):]
	if len(payload) == 0 {
		return p, ok
	}
	if len(payload) <= pieceSize {
		return p, false
	}
	payload = payload[copy(p.aheadPiece[:], payload):]
	var last int64
	for ok && len(payload) > 0 {
		from := last + number(uint64(math.MaxInt64-last))
		to := from + number(uint64(math.MaxInt64-from))
		if from == last {
			return p, false
		}
		p.ahead = append(p.ahead, span{from, to})
		last = to
	}
	return p, ok
}
