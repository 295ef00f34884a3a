package postgres

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ashlar-dev/storage/internal/key"
	"github.com/ashlar-dev/storage/internal/message"
)

// change is a row of the log.
type change struct {
	xid     uint64
	seq     int64
	op      int16
	key     []byte
	version []byte
	data    []byte

	replaced uint64 // of an own change: the transaction that wrote what was there before
}

// changes are the rows of a statement, with the row about the store.
type changes struct {
	about about
	rows  []change
	count int
}

func (c *changes) read(rows pgx.Rows) error {
	var now *string
	var id pgtype.UUID
	var horizon *string
	var xid pgtype.Uint64
	var seq pgtype.Int8
	var op pgtype.Int2
	var k, version, data []byte
	seen := false
	_, err := pgx.ForEachRow(rows, []any{&now, &horizon, &id, &xid, &seq, &op, &k, &version, &data}, func() error {
		if !xid.Valid {
			seen = true
			c.about.horizon, c.about.id = horizon, id.Bytes
			if now == nil {
				return nil
			}
			var err error
			if c.about.now, err = parseSnapshot(*now); err != nil {
				return failed{err}
			}
			return nil
		}
		c.rows = append(c.rows, change{xid: xid.Uint64, seq: seq.Int64, op: op.Int16, key: k, version: version, data: data})
		return nil
	})
	if err == nil && !seen {
		return errOther
	}
	c.count = len(c.rows)
	slices.SortFunc(c.rows, bySeq)
	return err
}

func bySeq(x, y change) int { return cmp.Compare(x.seq, y.seq) }

func (c *changes) last() int64 { return c.rows[len(c.rows)-1].seq }

// eventsOf turns changes, in order, into events between two snapshots.
func eventsOf(rows []change, old, until *snapshot) ([]*event, error) {
	events := make([]*event, 0, len(rows))
	for _, row := range rows {
		k, err := key.Parse(row.key)
		if err != nil {
			return nil, failed{err}
		}
		res, err := message.Decode(row.data, versionText(row.version))
		if err != nil {
			return nil, failed{fmt.Errorf("a change of %v: %w", k, err)}
		}
		events = append(events, &event{
			Key:      k,
			Delete:   row.op == opDelete,
			Resource: res,
			Size:     len(row.data),
			At:       position{old: old, until: until, seq: row.seq, xid: row.xid},
		})
	}
	return events, nil
}
