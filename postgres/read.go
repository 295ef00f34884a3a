package postgres

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/batch"
	"github.com/ashlar-dev/storage/internal/cas"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/message"
	"github.com/ashlar-dev/storage/resourcepb"
)

// readCall asks for what is stored under a key.
type readCall struct{ key []byte }

// stored is what was found: nothing if data is nil.
type stored struct {
	version []byte
	data    []byte
}

// versionText is the version that callers see.
func versionText(version []byte) string { return base64.RawURLEncoding.EncodeToString(version) }

// versionBytes undoes versionText. Text that this backend never made gives bytes that match nothing.
func versionBytes(text string) []byte {
	version, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(version) != versionSize || versionText(version) != text { // decoding skips line breaks
		return []byte{}
	}
	return version
}

// Read implements storage.Backend.
func (b *Backend) Read(ctx context.Context, consistency storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	k, err := check.ID("id", id)
	if err == nil {
		err = check.Consistency(consistency)
	}
	if err != nil {
		return nil, err
	}
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	keyBytes := k.Bytes()
	var row stored
	fresh := false
	if consistency == storage.EventualConsistency {
		row, fresh = b.readReplica(ctx, keyBytes)
	}
	if !fresh {
		row, err = b.reads.Do(ctx, readCall{keyBytes})
	}
	if err != nil {
		return nil, fmt.Errorf("read %v: %w", k, b.late(err))
	}
	var res *resourcepb.Resource
	if row.data != nil {
		if res, err = message.Decode(row.data, versionText(row.version)); err != nil {
			return nil, fmt.Errorf("read %v: %w", k, err)
		}
	}
	if err := cas.Read(res, id); err != nil {
		var mismatch storage.GroupVersionMismatchError
		if errors.As(err, &mismatch) {
			return nil, mismatch
		}
		return nil, fmt.Errorf("read %v: %w", k, err)
	}
	return res, nil
}

// late makes an end of patience in the queue what it is after sending: the database did not answer in time.
func (b *Backend) late(err error) error {
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, storage.ErrInconsistent) {
		return fmt.Errorf("%w: %w", storage.ErrInconsistent, err)
	}
	return err
}

type readMember = batch.Call[readCall, stored]

func (b *Backend) readBatch(ctx context.Context, calls []*readMember) {
	keys := make([][]byte, len(calls))
	for i, c := range calls {
		keys[i] = c.Request.key
	}
	var rows map[string]stored
	err := b.attempts(ctx, func(ctx context.Context) error {
		rows = make(map[string]stored, len(keys))
		return impatient(ctx, func(ctx context.Context) error { return b.fetch(ctx, keys, rows) })
	})
	b.answered()
	for _, c := range calls {
		c.Done(rows[string(c.Request.key)], err)
	}
}

// fetch reads what is stored under the keys, from the primary.
func (b *Backend) fetch(ctx context.Context, keys [][]byte, into map[string]stored) error {
	sql, arg := b.sql.readOne, any(keys[0])
	if len(keys) > 1 {
		sql, arg = b.sql.readMany, any(keys)
	}
	rows, err := b.pool.Query(ctx, sql, arg)
	if err != nil {
		return err
	}
	return collect(rows, into)
}

func collect(rows pgx.Rows, into map[string]stored) error {
	var key, version, data []byte
	_, err := pgx.ForEachRow(rows, []any{&key, &version, &data}, func() error {
		into[string(key)] = stored{version: version, data: data}
		return nil
	})
	return err
}
