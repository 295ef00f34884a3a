package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/batch"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/telemetry"
)

// reader reads single resources, in batches.
type reader struct {
	*database
	frontier *frontier
	batch    *batch.Batcher[[]byte, row]
}

func newReader(d *database, f *frontier) *reader {
	r := &reader{database: d, frontier: f}
	r.batch = batch.New(batch.Options[[]byte]{MaxCalls: 256, Workers: 2, WorkerAt: 100, Direct: true, Sizes: d.telemetry.batchSizes(telemetry.Read)}, r.readBatch)
	return r
}

// row is the stored resource of a key; there is none if data is nil. If tip is not 0, a change up to that number may be pending.
type row struct {
	version, data []byte
	tip           int64
	fence         []byte // nil in an open store
}

// readError returns the error of a strong read in a store with a fence, or nil.
func readError(ctx context.Context, fence []byte) error {
	if fence == nil {
		return nil
	}
	return driver.DecodeFence(string(fence)).ReadError(ctx)
}

// Get implements driver.Driver. A strong answer is the state of the resource at the tip, the highest number that the statement sees. If
// a lower number may be pending for the resource, Get waits until the tip is final and reads again.
func (r *reader) Get(ctx context.Context, consistency storage.ReadConsistency, k driver.Key) (*resourcepb.Resource, error) {
	key := k.Bytes()
	var found row
	var err error
	fresh := false
	if consistency == storage.EventualConsistency && r.replica != nil {
		found, fresh = r.readReplica(ctx, key)
	}
	if !fresh {
		found, err = r.batch.Do(ctx, key)
		if err == nil && found.tip != 0 && consistency == storage.StrongConsistency {
			if err = r.frontier.await(ctx, found.tip); err == nil {
				found, err = r.batch.Do(ctx, key) // the version of the tip, or a later one
			}
		}
		if err == nil && consistency == storage.StrongConsistency {
			err = readError(ctx, found.fence)
		}
		if err != nil {
			return nil, err
		}
	}
	if found.data == nil {
		return nil, nil
	}
	res, err := codec.DecodeOf(k, found.data, versionText(found.version))
	if err != nil {
		return nil, r.identify(ctx, key, found.version, err)
	}
	return res, nil
}

// readReplica reads a key from the replica; fresh is false if the replica must not answer.
func (r *reader) readReplica(ctx context.Context, key []byte) (found row, fresh bool) {
	fresh = r.replica.query(ctx, r.replica.sql.readOne, []any{key}, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&found.version, &found.data}, func() error { return nil })
		return err
	})
	return found, fresh
}

// identify adds the uid to an error about a damaged resource, which is needed to replace or delete the resource.
func (r *reader) identify(ctx context.Context, key, version []byte, err error) error {
	var damaged *storage.DamagedError
	if errors.As(err, &damaged) {
		var uid []byte
		// If this query fails, the damage is still the error.
		if r.main.QueryRow(ctx, r.sql.identify, key, version).Scan(&uid) == nil {
			damaged.ID.Uid = string(uid)
		}
	}
	return err
}

func (r *reader) readBatch(ctx context.Context, calls []*batch.Call[[]byte, row]) {
	base, index, token := r.frontier.baseArguments()
	var tip []byte
	if len(calls) == 1 {
		var one row
		err := r.queryPrimary(ctx, func() { one = row{} }, r.sql.readStrong, []any{calls[0].Request, base, index, token},
			[]any{&one.version, &one.data, &tip, &one.fence}, func() error { _, one.tip = r.frontier.noteTip(tip); return nil })
		calls[0].Done(one, err)
		return
	}
	keys := make([][]byte, len(calls))
	for i, c := range calls {
		keys[i] = c.Request
	}
	found := make([]row, len(keys))
	var place int
	var version, data, fence []byte
	arguments, into := []any{keys, base, index, token}, []any{&place, &version, &data, &tip, &fence}
	err := r.queryPrimary(ctx, func() { clear(found) }, r.sql.readMany, arguments, into, func() error {
		_, unproven := r.frontier.noteTip(tip)
		found[place-1] = row{version, data, unproven, fence}
		return nil
	})
	for i, c := range calls {
		c.Done(found[i], err)
	}
}
