package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/resourcepb"
)

// maxOps is the largest number of operations in a transaction. SQLite sets no bound; all writers wait for one transaction.
const maxOps = 256

// MaxOps implements storage.Transactor.
func (s *Backend) MaxOps() int { return maxOps }

// Commit implements storage.Transactor.
func (s *Backend) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	keys, err := check.Ops(ops, maxOps, s.options.MaxSize)
	if err := s.enter(ctx, err); err != nil || len(ops) == 0 {
		return nil, err
	}
	r := &request{changes: make([]change, len(ops)), several: true}
	for i, op := range ops {
		switch {
		case op.Write != nil:
			if r.changes[i], err = writing(keys[i], op.Write); err != nil {
				return nil, &storage.OpError{Index: i, Err: about("write", keys[i], err)}
			}
		case op.Delete != nil:
			r.changes[i] = change{kind: deleteChange, key: keys[i].Bytes(), uid: op.Delete.Uid, given: op.Version}
		default:
			r.changes[i] = change{kind: checkChange, key: keys[i].Bytes(), uid: op.Check.Uid, given: op.Version}
		}
	}
	if err := s.write(ctx, r); err != nil {
		var failed *storage.OpError
		if errors.As(err, &failed) {
			return nil, &storage.OpError{Index: failed.Index, Err: fmt.Errorf("%v: %w", keys[failed.Index], failed.Err)}
		}
		return nil, fmt.Errorf("commit: %w", err)
	}
	results := make([]*resourcepb.Resource, len(ops))
	for i, op := range ops {
		if op.Write != nil {
			results[i] = r.changes[i].result(op.Write)
		}
	}
	return results, nil
}
