package postgres

import (
	"context"
	"encoding/base64"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/batch"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// readCall asks for what is stored under a key.
type readCall struct{ key []byte }

// stored is what was found: nothing if data is nil.
type stored struct {
	version []byte
	data    []byte
}

const versionSize = 16

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

// Get implements driver.Driver.
func (b *handle) Get(ctx context.Context, consistency storage.ReadConsistency, k driver.Key) (*resourcepb.Resource, error) {
	keyBytes := k.Bytes()
	var row stored
	fresh := false
	if consistency == storage.EventualConsistency {
		row, fresh = b.readReplica(ctx, keyBytes)
	}
	if !fresh {
		var err error
		if row, err = b.reads.Do(ctx, readCall{keyBytes}); err != nil {
			return nil, err
		}
	}
	if row.data == nil {
		return nil, nil
	}
	res, err := codec.DecodeOf(k, row.data, versionText(row.version))
	if err != nil {
		return nil, b.identify(ctx, keyBytes, row.version, err)
	}
	return res, nil
}

// identify adds the uid to an error about damage, by which what is stored can be written anew or deleted.
func (b *handle) identify(ctx context.Context, key, version []byte, err error) error {
	var damaged *storage.DamagedError
	if errors.As(err, &damaged) {
		var uid []byte
		// Without an answer, the damage is still the error.
		if b.pool.QueryRow(ctx, b.sql.identify, key, version).Scan(&uid) == nil {
			damaged.ID.Uid = string(uid)
		}
	}
	return err
}

type readMember = batch.Call[readCall, stored]

func (b *handle) readBatch(ctx context.Context, calls []*readMember) {
	if len(calls) == 1 {
		var one stored
		err := b.lookUp(ctx, func(ctx context.Context, conn *pgx.Conn) error {
			rows, err := conn.Query(ctx, b.sql.readOne, calls[0].Request.key)
			if err == nil {
				one, err = scanOne(rows)
			}
			return err
		})
		b.answered()
		calls[0].Done(one, err)
		return
	}
	keys := make([][]byte, len(calls))
	for i, c := range calls {
		keys[i] = c.Request.key
	}
	var found map[string]stored
	err := b.lookUp(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, b.sql.readMany, keys)
		if err == nil {
			found, err = scanMany(rows, len(keys))
		}
		return err
	})
	b.answered()
	for _, c := range calls {
		c.Done(found[string(c.Request.key)], err)
	}
}

// lookUp carries out a short query on a connection that is given up when it stays silent.
func (b *handle) lookUp(ctx context.Context, query func(ctx context.Context, conn *pgx.Conn) error) error {
	return b.repeat(ctx, func(ctx context.Context) error {
		conn, err := primary(ctx, b.pool)
		if err != nil {
			return err
		}
		defer conn.Release()
		ctx, done := b.watchdog.watch(ctx, conn.Conn(), false, 0)
		defer done(false)
		return query(ctx, conn.Conn())
	})
}

// scanOne reads the row of readOne, if there is one.
func scanOne(rows pgx.Rows) (one stored, err error) {
	_, err = pgx.ForEachRow(rows, []any{&one.version, &one.data}, func() error { return nil })
	return one, err
}

// scanMany reads the rows of readMany, by their keys.
func scanMany(rows pgx.Rows, most int) (map[string]stored, error) {
	found := make(map[string]stored, most)
	var key, version, data []byte
	_, err := pgx.ForEachRow(rows, []any{&key, &version, &data}, func() error {
		found[string(key)] = stored{version: version, data: data}
		return nil
	})
	return found, err
}
