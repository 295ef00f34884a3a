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

// beyond adds to the position of a snapshot what it shows above the number that is final.
func (b *handle) beyond(ctx context.Context, tx pgx.Tx, at *position, final int64) (err error) {
	count := 0
	at.aheadPiece, err = b.digest(ctx, tx, span{final + 1, math.MaxInt64 - 1}, maxAhead+1, func(revision int64) bool {
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
func (b *handle) checkAhead(ctx context.Context, conn *pgx.Conn, at *position) error {
	if len(at.ahead) == 0 {
		return nil
	}
	piece, err := b.digest(ctx, conn, span{at.ahead[0].from, at.lastAhead()}, math.MaxInt64, at.isAhead)
	if err == nil && piece != at.aheadPiece {
		err = errForked
	}
	return err
}

// digest returns a piece of the digest of the changes in a range that are taken.
func (b *handle) digest(
	ctx context.Context, q querier, in span, limit int64, take func(revision int64) bool,
) (piece [pieceSize]byte, err error) {
	rows, err := q.Query(ctx, b.sql.tokensIn, in.from, in.to, limit)
	if err != nil {
		return piece, err
	}
	hash := sha256.New()
	var revision int64
	var token []byte
	_, err = pgx.ForEachRow(rows, []any{&revision, &token}, func() error {
		if take(revision) {
			hash.Write(token)
		}
		return nil
	})
	copy(piece[:], hash.Sum(nil))
	return piece, err
}

// listed has the feed prove the position of a watch once more when it has come there itself. A fail-over that loses commits may come
// in between: then other changes bear the numbers that the watch takes for seen, and the feed, which was behind, goes on through them.
func (in *inbox) listed(at *position) {
	if in == nil || at.revision == 0 && len(at.ahead) == 0 {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if n := len(in.listings); n > 0 && compare(at, &in.listings[n-1]) == 0 &&
		at.piece == in.listings[n-1].piece && at.aheadPiece == in.listings[n-1].aheadPiece {
		return
	}
	in.listings = append(in.listings, *at)
}

// checkListed checks what watches have seen before the feed, once the feed is about to pass it, or there is nothing more to pass.
func (r *run) checkListed(ctx context.Context, conn *pgx.Conn, found *found) error {
	r.in.mu.Lock()
	listed := r.in.listings
	r.in.listings = nil
	r.in.mu.Unlock()
	end := found.end(r.at)
	for i := range listed {
		passed := max(listed[i].revision, listed[i].lastAhead()) <= end.revision
		if passed || !found.more && !found.back {
			err := r.b.checkThere(ctx, conn, found, &listed[i])
			if err == nil {
				err = r.b.checkAhead(ctx, conn, &listed[i])
			}
			if err != nil {
				for ; i < len(listed); i++ { // they wait for another look, where the database only did not answer
					r.in.listed(&listed[i])
				}
				return err
			}
		}
		if !passed {
			r.in.listed(&listed[i])
		}
	}
	return nil
}

// checkThere reports whether the change at a position is there: among those that were just found, or in the database. One that has been
// deleted since, as the retention asks for, says nothing.
func (b *handle) checkThere(ctx context.Context, conn *pgx.Conn, found *found, at *position) error {
	i, among := slices.BinarySearchFunc(found.changes, at, func(c change, at *position) int { return compare(&c.at, at) })
	if among && found.changes[i].at.piece == at.piece {
		return nil
	}
	rows, err := conn.Query(ctx, b.sql.changes, at.revision, at.place, 0, pageBytes)
	if err == nil {
		_, _, err = b.scanChanges(rows, at, 0)
	}
	if errors.Is(err, errPruned) {
		return nil
	}
	return err
}
