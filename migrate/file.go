package migrate

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/codec"
)

// An export is this line and a zstd stream of: each resource, without its version, in key order, as its length (a varint) and its
// bytes; a zero; the number of resources and the time of the export in Unix seconds (eight bytes each, big-endian); and the SHA-256
// of the stream's content up to there. Nothing follows.
const fileMagic = "ashlar export 1\n"

// errDamaged is matched by all errors about the content of a file.
var errDamaged = fmt.Errorf("%w: the export is damaged or incomplete", storage.ErrInvalid)

// Summary describes an export.
type Summary struct {
	// Resources is the number of resources, Bytes their encoded size.
	Resources int
	Bytes     int64
	// Time is when the export was made.
	Time time.Time
}

// Export writes the contents of a store to w, compressed, in constant memory. It writes a snapshot if the database has snapshots.
// DynamoDB has none, so a resource that changes meanwhile is in the export in its old or its new state.
func Export(ctx context.Context, from storage.Backend, w io.Writer) (*Summary, error) {
	ctx, cancel := withoutDeadline(ctx)
	defer cancel(nil)
	s, err := newMigration(from, nil, nil).export(ctx, w)
	if err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	return s, nil
}

func (m *migration) export(ctx context.Context, w io.Writer) (*Summary, error) {
	source, err := listSnapshot(ctx, m.from, m.o.PageSize, m.try)
	if err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	defer source.close()
	if _, err := io.WriteString(w, fileMagic); err != nil {
		return nil, err
	}
	packed, err := zstd.NewWriter(w)
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	out := bufio.NewWriterSize(io.MultiWriter(packed, sum), 64<<10)
	s := &Summary{Time: time.Now().UTC().Truncate(time.Second)}
	err = func() error {
		for {
			e, err := source.next(ctx)
			if err != nil {
				return fmt.Errorf("source: %w", err)
			}
			if e == nil {
				break
			}
			size := binary.AppendUvarint(nil, uint64(len(e.Data)))
			if _, err := out.Write(size); err != nil {
				return err
			}
			if _, err := out.Write(e.Data); err != nil {
				return err
			}
			s.Resources++
			s.Bytes += int64(len(size) + len(e.Data))
		}
		end := []byte{0}
		end = binary.BigEndian.AppendUint64(end, uint64(s.Resources))
		end = binary.BigEndian.AppendUint64(end, uint64(s.Time.Unix()))
		if _, err := out.Write(end); err != nil {
			return err
		}
		if err := out.Flush(); err != nil {
			return err
		}
		_, err := packed.Write(sum.Sum(nil))
		return err
	}()
	return s, errors.Join(err, packed.Close())
}

// fileStream is the stream of an export.
type fileStream struct {
	packedReader *zstd.Decoder
	in           *bufio.Reader
	sum          hash.Hash
	last         *key.Key
	s            Summary
	atEnd        bool
}

func readFile(r io.Reader) (*fileStream, error) {
	magic := make([]byte, len(fileMagic))
	if _, err := io.ReadFull(r, magic); err != nil || string(magic) != fileMagic {
		if bytes.HasPrefix(magic, []byte("ashlar export ")) {
			return nil, fmt.Errorf("%w: the export has a format that this program does not support", storage.ErrInvalid)
		}
		return nil, fmt.Errorf("%w: the file is not an export", storage.ErrInvalid)
	}
	packed, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(256<<20))
	if err != nil {
		return nil, err
	}
	return &fileStream{packedReader: packed, in: bufio.NewReaderSize(packed, 64<<10), sum: sha256.New()}, nil
}

func (f *fileStream) close() { f.packedReader.Close() }

// next implements stream. It has read and checked the whole file when it returns nil.
func (f *fileStream) next(ctx context.Context) (*entry, error) {
	if err := ctx.Err(); err != nil || f.atEnd {
		return nil, err
	}
	size, err := binary.ReadUvarint(f.in)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	f.sum.Write(binary.AppendUvarint(nil, size))
	if size == 0 {
		f.atEnd = true
		return nil, f.end()
	}
	if size > check.MaxSize {
		return nil, fmt.Errorf("%w: a resource of %d bytes", errDamaged, size)
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(f.in, data); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	f.sum.Write(data)
	res, err := codec.Decode(data, "")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	k, err := check.Resource(res, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if f.last != nil && f.last.Compare(k) >= 0 {
		return nil, fmt.Errorf("%w: %v is out of order", errDamaged, k)
	}
	f.last = &k
	f.s.Resources++
	f.s.Bytes += int64(len(data) + len(binary.AppendUvarint(nil, size)))
	return &entry{driver.Row{Key: k, Data: data}, res}, nil
}

// end checks the data after the last resource.
func (f *fileStream) end() error {
	var end [16 + sha256.Size]byte
	if _, err := io.ReadFull(f.in, end[:]); err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	f.sum.Write(end[:16])
	if !bytes.Equal(f.sum.Sum(nil), end[16:]) {
		return fmt.Errorf("%w: the checksum does not match", errDamaged)
	}
	if n := binary.BigEndian.Uint64(end[:8]); n != uint64(f.s.Resources) {
		return fmt.Errorf("%w: %d resources, expected %d", errDamaged, f.s.Resources, n)
	}
	f.s.Time = time.Unix(int64(binary.BigEndian.Uint64(end[8:16])), 0).UTC()
	if _, err := f.in.ReadByte(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: data follows its end", errDamaged)
	}
	return nil
}

// Check reads an export to its end and returns its summary. An altered or truncated file is storage.ErrInvalid.
func Check(ctx context.Context, r io.Reader) (*Summary, error) {
	f, err := readFile(r)
	if err != nil {
		return nil, err
	}
	defer f.close()
	for {
		e, err := f.next(ctx)
		if err != nil {
			return nil, err
		}
		if e == nil {
			return &f.s, nil
		}
	}
}

// Import writes the contents of an export to a store. It first reads the file to its end and checks it, so a damaged file changes
// nothing. Options are the options of Run that concern the target. An interrupted import continues with Overwrite or Mirror, and
// existing resources cost little.
func Import(ctx context.Context, r io.ReadSeeker, to storage.Backend, opts *Options) (*Result, error) {
	m := newMigration(nil, to, opts)
	began := time.Now()
	ctx, cancel := withoutDeadline(ctx)
	defer cancel(nil)
	stop := m.stats.report(ctx)
	result, err := m.load(ctx, r)
	stop()
	result.Work, result.Duration = m.stats.counts(), time.Since(began)
	if err != nil {
		return result, fmt.Errorf("import: %w", err)
	}
	return result, nil
}

func (m *migration) load(ctx context.Context, r io.ReadSeeker) (*Result, error) {
	result := &Result{Phase: Copying}
	start, err := r.Seek(0, io.SeekCurrent)
	if err != nil {
		return result, err
	}
	again := func(use func(*fileStream) error) error {
		if _, err := r.Seek(start, io.SeekStart); err != nil {
			return err
		}
		f, err := readFile(r)
		if err != nil {
			return err
		}
		defer f.close()
		return use(f)
	}
	s, err := Check(ctx, r)
	if err != nil {
		return result, err
	}
	m.stats.total.Store(int64(s.Resources))
	switch m.o.Into {
	case Empty:
		empty, err := isEmpty(ctx, m.to, m.try)
		if err != nil {
			return result, fmt.Errorf("target: %w", err)
		}
		if !empty {
			return result, ErrNotEmpty
		}
	case Merge:
		if err := again(func(f *fileStream) error { return m.preflight(ctx, f) }); err != nil {
			return result, err
		}
	}
	err = again(func(f *fileStream) error {
		_, err := m.pass(ctx, f, m.conflictAtCutover, nil)
		return err
	})
	if err != nil {
		return result, err
	}
	err = again(func(f *fileStream) (err error) {
		result.Report, err = m.compare(ctx, f, nil, nil)
		return err
	})
	if err == nil && !m.isComplete(result.Report) {
		err = fmt.Errorf("%w after the import (is another program writing to the store?): %v", ErrDiffers, result.Report)
	}
	return result, err
}
