package postgres

import (
	"context"
	"crypto/sha256"
	"errors"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"
)

// A snapshot may show changes above some that are not final yet. Its position names them by ranges of numbers, and proves them by a
// digest of their tokens: after a fail-over that lost them the numbers belong to other changes, or to none.

// maxAhead bounds the changes in a snapshot that are above the last final one. They become more only while a commit stalls.
const maxAhead = 10_000

var errAhead = errors.New("a commit that stalls holds back the history")

// addAhead adds to the position of a snapshot what it shows above the number that is final.
func (h *history) addAhead(ctx context.Context, conn querier, at *position, final int64) (err error) {
	count := 0
	at.aheadPiece, err = h.digest(ctx, conn, span{final + 1, math.MaxInt64 - 1}, maxAhead+1, func(revision int64) bool {
		count++
		if n := len(at.ahead); n > 0 && at.ahead[n-1].to >= revision-1 {
			at.ahead[n-1].to = revision
		} else {
			at.ahead = append(at.ahead, span{revision, revision})
		}
		return true
	})
	if err == nil && count > maxAhead {
		err = notSent{errAhead} // it is tried again
	}
	return err
}

// checkAhead reports whether all that a position includes ahead is still there.
func (h *history) checkAhead(ctx context.Context, conn querier, at *position) error {
	if len(at.ahead) == 0 {
		return nil
	}
	// A snapshot has shown a change of each number, so none of them can come later. The digest of none is no secret.
	left := int64(maxAhead)
	for _, s := range at.ahead {
		if s.to-s.from >= left {
			return errForked
		}
		left -= s.to - s.from + 1
	}
	left = maxAhead - left
	var last int64
	piece, err := h.digest(ctx, conn, span{at.ahead[0].from, at.lastAhead()}, math.MaxInt64, func(revision int64) bool {
		ahead := at.isAhead(revision)
		if ahead && revision != last {
			last = revision
			left--
		}
		return ahead
	})
	if err == nil && (left != 0 || piece != at.aheadPiece) {
		err = errForked
	}
	return err
}

// digest returns a piece of the digest of the changes in a range that are taken.
func (h *history) digest(
	ctx context.Context, q querier, in span, limit int64, take func(revision int64) bool,
) (piece [pieceSize]byte, err error) {
	hash := sha256.New()
	var revision int64
	var token []byte
	rows, _ := q.Query(ctx, h.sql.tokensIn, in.from, in.to, limit) // an error shows in the rows
	_, err = pgx.ForEachRow(rows, []any{&revision, &token}, func() error {
		if take(revision) {
			hash.Write(token)
		}
		return nil
	})
	copy(piece[:], hash.Sum(nil))
	return piece, err
}

// checkThere reports whether the change at a position is there: among those that were just found, or in the database. One that has been
// deleted since, as the retention asks for, says nothing.
func (h *history) checkThere(ctx context.Context, conn *pgx.Conn, read *page, at *position) error {
	i, among := slices.BinarySearchFunc(read.changes, at, func(c change, at *position) int { return compare(&c.at, at) })
	if among && read.changes[i].at.piece == at.piece {
		return nil
	}
	rows, _ := conn.Query(ctx, h.sql.changes, at.revision, at.place, 0, pageBytes)
	_, _, err := h.scan(rows, at, 0)
	if errors.Is(err, errPruned) {
		return nil
	}
	return err
}
