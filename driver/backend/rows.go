package backend

import (
	"context"
	"encoding/binary"
	"errors"
	"io"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/internal/spill"
	"github.com/ashlar-dev/storage/resourcepb"
)

// decodedRows is Rows in memory, decodedRows as they come.
type decodedRows struct{ resources []*resourcepb.Resource }

// Restart implements Rows.
func (d *decodedRows) Restart() { d.resources = nil }

// Add implements Rows.
func (d *decodedRows) Add(key, version, data []byte) error {
	res, err := codec.DecodeAt(key, data, string(version))
	if err != nil {
		return err
	}
	d.resources = append(d.resources, res)
	return nil
}

// AddResource implements Rows.
func (d *decodedRows) AddResource(res *resourcepb.Resource) error {
	d.resources = append(d.resources, res)
	return nil
}

// addVersion adds what Historian.ReadAt has read.
func (d *decodedRows) addVersion(v *driver.Version) error {
	res, err := v.Decode()
	if err != nil {
		return err
	}
	return d.AddResource(res)
}

// copiedRows is Rows as they are, in memory up to a bound and beyond it in a temporary file.
type copiedRows struct {
	memory int
	spool  *spill.Spool
	record []byte
}

func newCopied(memory int) *copiedRows { return &copiedRows{memory: memory, spool: spill.New(memory)} }

// Restart implements Rows.
func (c *copiedRows) Restart() {
	_ = c.spool.Close() // what was in it is of no use
	c.spool = spill.New(c.memory)
}

// A record is the key and the version with their lengths, then the resource.

// Add implements Rows.
func (c *copiedRows) Add(key, version, data []byte) error {
	c.record = binary.AppendUvarint(c.record[:0], uint64(len(key)))
	c.record = append(c.record, key...)
	c.record = binary.AppendUvarint(c.record, uint64(len(version)))
	c.record = append(c.record, version...)
	return c.spool.Append(append(c.record, data...))
}

// AddResource implements Rows.
func (c *copiedRows) AddResource(res *resourcepb.Resource) error {
	data, err := codec.Encode(res)
	if err != nil {
		return err
	}
	return c.Add(keyOf(res), []byte(res.GetVersion()), data)
}

// close frees the rows after an error, which tells more than another.
func (c *copiedRows) close(err error) error { return errors.Join(err, c.spool.Close()) }

func fromRecord(record []byte) (*resourcepb.Resource, error) {
	key, record := cut(record)
	version, data := cut(record)
	return codec.DecodeAt(key, data, string(version))
}

func cut(record []byte) (text, rest []byte) {
	size, n := binary.Uvarint(record)
	end := n + int(size)
	return record[n:end], record[end:]
}

// spooledSnapshot is copied rows as the snapshot of a watch.
type spooledSnapshot struct {
	rows   *spill.Spool
	reader *spill.Reader
}

// Next implements Snapshot.
func (s *spooledSnapshot) Next(context.Context) (*resourcepb.Resource, error) {
	record, err := s.reader.Next()
	if err != nil {
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		return nil, err
	}
	return fromRecord(record)
}

// Close implements Snapshot.
func (s *spooledSnapshot) Close() { _ = s.rows.Close() } // frees memory, and a file that has no name any more
