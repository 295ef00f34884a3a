package postgres

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Children implements driver.Driver. It always reads the primary, like a strong list. After maxGaps attempts that find a missing number
// below the tip, the references are read as of a tip, with the help of the log.
func (l *lister) Children(ctx context.Context, owner driver.Key, uid string) ([]*resourcepb.ID, error) {
	hash := ownerHash(owner, uid)
	for n := 1; ; n++ {
		ids, gap, err := l.childrenNow(ctx, hash)
		if err == nil && gap != 0 {
			err = l.frontier.await(ctx, gap)
		}
		if err != nil || gap == 0 {
			return ids, err
		}
		if n < maxGaps {
			continue
		}
		// If the log does not continue from the base any more, or another server has answered, everything starts again.
		if ids, err = l.childrenAtTip(ctx, hash); !errors.Is(err, storage.ErrCompacted) {
			return ids, err
		}
	}
}

// childrenNow reads the references to an owner. If it finds a missing number below the tip, it returns the tip as the gap.
func (l *lister) childrenNow(ctx context.Context, hash []byte) (ids []*resourcepb.ID, gap int64, err error) {
	base, index, token := l.frontier.baseArguments()
	var keyBytes, uid, groupVersion []byte
	into := []any{&keyBytes, &uid, &groupVersion}
	begin := func() { ids, gap = nil, 0 }
	err = l.queryPrimary(ctx, begin, l.sql.strongChildren, []any{hash, base, index, token}, into, func() error {
		if keyBytes == nil {
			_, gap = l.frontier.noteTip(uid)
			return nil
		}
		id, err := childOf(keyBytes, uid, groupVersion)
		ids = append(ids, id)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return ids, gap, nil
}

func childOf(keyBytes, uid, groupVersion []byte) (*resourcepb.ID, error) {
	k, err := key.Parse(keyBytes)
	if err != nil {
		return nil, permanent{err}
	}
	return k.ID(string(uid), string(groupVersion)), nil
}

// childrenAtTip reads the references to an owner as of the tip of a snapshot. It reads the rows of the snapshot, waits until the tip is
// final, and applies the changes of the log from the base up to the tip. The base was final before, so the snapshot shows all changes
// up to it. It returns an error that matches storage.ErrCompacted if the log lacks the base or the tip of the snapshot.
func (l *lister) childrenAtTip(ctx context.Context, hash []byte) ([]*resourcepb.ID, error) {
	base := *l.frontier.base.Load()
	var children map[string]*resourcepb.ID
	var tip position
	var proven bool
	err := l.onPrimary(ctx, func(ctx context.Context, conn *pgxpool.Conn) (err error) {
		children, tip, proven, err = l.childrenOfSnapshot(ctx, conn.Conn(), hash, &base)
		return err
	})
	if err == nil && !proven {
		if err = l.frontier.await(ctx, tip.revision); err == nil {
			err = l.applyChildren(ctx, children, hash, base, &tip)
		}
	}
	if err != nil {
		return nil, err
	}
	var ids []*resourcepb.ID
	for _, k := range slices.Sorted(maps.Keys(children)) {
		ids = append(ids, children[k])
	}
	return ids, nil
}

// applyChildren applies the changes after a position, up to all places of the tip's commit, to the references of an owner. The log must
// contain the position, and the tip after it.
func (l *lister) applyChildren(ctx context.Context, children map[string]*resourcepb.ID, hash []byte, at position, tip *position) error {
	hasTip := false
	for more := true; more; {
		var p page
		if err := l.onPrimary(ctx, func(ctx context.Context, conn *pgxpool.Conn) (err error) {
			p, err = l.frontier.after(ctx, conn.Conn(), &at, tip.revision, pageRows)
			return permanentError(err)
		}); err != nil {
			return err
		}
		more = p.more
		for _, c := range p.changes {
			if at = c.at; at.revision > tip.revision {
				more = false
				break
			}
			hasTip = hasTip || at.revision == tip.revision && at.index == 0 && at.tokenPrefix == tip.tokenPrefix
			if err := applyChild(children, &c, hash); err != nil {
				return err
			}
		}
	}
	if !hasTip {
		return errForked
	}
	return nil
}

// childrenOfSnapshot reads the references to an owner by their keys, and the tip, in one snapshot. The tip is proven if it is final; that
// of an empty log is.
func (l *lister) childrenOfSnapshot(
	ctx context.Context, conn *pgx.Conn, hash []byte, base *position,
) (children map[string]*resourcepb.ID, tip position, proven bool, err error) {
	children = map[string]*resourcepb.ID{}
	var queries pgx.Batch
	queries.Queue(repeatableRead)
	queries.Queue(l.sql.tip, base.revision, base.index, base.tokenPrefix[:]).QueryRow(func(row pgx.Row) error {
		var result []byte
		err := row.Scan(&result)
		_, unproven := l.frontier.noteTip(result)
		if proven = unproven == 0; !proven {
			tip = position{revision: unproven, tokenPrefix: [tokenPrefixSize]byte(result[8:])}
		}
		return err
	})
	queries.Queue(l.sql.children, hash).Query(func(rows pgx.Rows) error {
		var keyBytes, uid, groupVersion []byte
		_, err := pgx.ForEachRow(rows, []any{&keyBytes, &uid, &groupVersion}, func() error {
			id, err := childOf(keyBytes, uid, groupVersion)
			children[string(keyBytes)] = id
			return err
		})
		return err
	})
	queries.Queue(`commit`)
	err = conn.SendBatch(ctx, &queries).Close()
	return children, tip, proven, err
}

// applyChild applies a change to the references of an owner. A change whose data is damaged does not show its owner.
func applyChild(children map[string]*resourcepb.ID, c *change, hash []byte) error {
	delete(children, string(c.key))
	if c.kind == kindDelete {
		return nil
	}
	k, err := key.Parse(c.key)
	if err != nil {
		return permanent{err}
	}
	res, err := codec.DecodeOf(k, c.data, versionText(c.version))
	if err != nil {
		return errDamaged
	}
	if owner := res.GetOwner(); owner != nil && bytes.Equal(ownerHash(key.Of(owner), owner.GetUid()), hash) {
		children[string(c.key)] = k.ID(res.Id.GetUid(), res.Id.GetType().GetGroupVersion())
	}
	return nil
}
