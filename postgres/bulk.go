package postgres

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/handover"
	"github.com/ashlar-dev/storage/internal/key"
	"github.com/ashlar-dev/storage/internal/message"
)

var (
	_ handover.Reader = (*Backend)(nil)
	_ handover.Loader = (*Backend)(nil)
)

// ReadAfter returns a part of what is stored, for the tool that moves it to another store.
func (b *Backend) ReadAfter(ctx context.Context, after []byte, limit int) ([]handover.Row, error) {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if after == nil {
		after = []byte{} // before all keys
	}
	var found []handover.Row
	err = b.attempts(ctx, func(ctx context.Context) error {
		found = make([]handover.Row, 0, limit)
		rows, err := b.pool.Query(ctx, b.sql.readAfter, after, limit, handover.ReadBytes)
		if err != nil {
			return err
		}
		var name, version, data []byte
		_, err = pgx.ForEachRow(rows, []any{&name, &version, &data}, func() error {
			k, err := key.Parse(name)
			if err != nil {
				return failed{err}
			}
			found = append(found, handover.Row{Key: k, Version: versionText(version), Data: data})
			return nil
		})
		return err
	})
	b.answered()
	if err != nil {
		return nil, fmt.Errorf("read on: %w", err)
	}
	return found, nil
}

// Load creates resources by COPY, for the tool that moves them here from another store.
func (b *Backend) Load(ctx context.Context, rows []handover.Row) error {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	columns, err := loadRows(rows, b.opts.MaxSize)
	if err != nil || len(rows) == 0 {
		return err
	}
	err = b.attempts(ctx, func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error { return b.copyIn(ctx, tx, columns) })
	})
	b.answered()
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	b.changed(nil)
	return nil
}

// copyIn writes the resources, and then what it wrote into the log of changes: a sequence number has to be drawn while the key
// is taken.
func (b *Backend) copyIn(ctx context.Context, tx pgx.Tx, rows []loadRow) error {
	_, err := tx.Conn().PgConn().CopyFrom(ctx, &binaryCopy{rows: rows}, b.sql.loadResources)
	if err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, b.sql.logLoaded, rows[0].key, rows[len(rows)-1].key)
	if err == nil && tag.RowsAffected() != int64(len(rows)) {
		err = failed{fmt.Errorf("%d of %d rows found their way into the log", tag.RowsAffected(), len(rows))}
	}
	return err
}

// loadRow holds the columns of one resource.
type loadRow struct {
	key, uid, version, groupVersion, owner, data []byte
}

// loadRows takes out of resources what the columns hold.
func loadRows(rows []handover.Row, maxSize int) ([]loadRow, error) {
	columns := make([]loadRow, len(rows))
	versions := make([]byte, versionSize*len(rows))
	_, _ = rand.Read(versions) // never fails
	for i, row := range rows {
		res, err := message.Decode(row.Data, "")
		if err != nil {
			return nil, fmt.Errorf("load %v: %w", row.Key, err)
		}
		k, err := check.IDWithUid("id", res.GetId())
		if err == nil && res.GetOwner() != nil {
			_, err = check.IDWithUid("owner", res.GetOwner())
		}
		if err == nil && len(row.Data) > maxSize {
			err = fmt.Errorf("%w: the resource has %d bytes, the most is %d", storage.ErrTooLarge, len(row.Data), maxSize)
		}
		if err != nil {
			return nil, fmt.Errorf("load %v: %w", row.Key, err)
		}
		columns[i] = loadRow{
			key: k.Bytes(), uid: []byte(res.GetId().GetUid()), version: versions[i*versionSize:][:versionSize],
			groupVersion: []byte(res.GetId().GetType().GetGroupVersion()), data: row.Data,
		}
		if res.GetOwner() != nil {
			columns[i].owner = ownerHash(res.GetOwner())
		}
	}
	return columns, nil
}

// append appends the columns of loadResources.
func (r *loadRow) append(to []byte) []byte {
	to = binary.BigEndian.AppendUint16(to, 6)
	for _, column := range [][]byte{r.key, r.uid, r.version, r.groupVersion, r.owner, r.data} {
		to = appendColumn(to, column)
	}
	return to
}

// appendColumn appends bytes, or NULL.
func appendColumn(to, value []byte) []byte {
	if value == nil {
		return append(to, 0xff, 0xff, 0xff, 0xff)
	}
	return append(binary.BigEndian.AppendUint32(to, uint32(len(value))), value...)
}

// binaryCopy is the text of a COPY in Postgres' binary format, made as it is read. With pgx's own CopyFrom, which looks at every
// value's type, copying takes a quarter longer.
type binaryCopy struct {
	rows []loadRow
	step int // 0 is what comes before the rows
	room []byte
	left []byte
}

const (
	copyHead = "PGCOPY\n\xff\r\n\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00"
	copyEnd  = "\xff\xff"
)

// Read implements io.Reader. It fills p, since each piece is sent by itself.
func (c *binaryCopy) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if len(c.left) == 0 {
			switch {
			case c.step == 0:
				c.room = append(c.room, copyHead...)
			case c.step <= len(c.rows):
				c.room = c.rows[c.step-1].append(c.room[:0])
			case c.step == len(c.rows)+1:
				c.room = append(c.room[:0], copyEnd...)
			default:
				return n, io.EOF
			}
			c.step++
			c.left = c.room
		}
		some := copy(p[n:], c.left)
		c.left = c.left[some:]
		n += some
	}
	return n, nil
}
