package inmem

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"

	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// A snapshot consists of this line, the number of resources, each resource with its length, and a CRC-32C of all that.
const snapshotMagic = "ashlar memory snapshot 1\n"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Snapshot writes the state of the store at one moment during the call. It does not block writers.
func (b *Backend) Snapshot(ctx context.Context, w io.Writer) error {
	if err := b.begin(ctx); err != nil {
		return err
	}
	tree, count := b.handle.snapshotWithCount()
	sum := crc32.New(castagnoli)
	out := bufio.NewWriter(io.MultiWriter(w, sum))
	_, err := out.WriteString(snapshotMagic)
	if err == nil {
		err = binary.Write(out, binary.BigEndian, uint64(count))
	}
	tree.Scan(func(it *item) bool {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil && !it.isDeletion() {
			_, err = protodelim.MarshalTo(out, it.resource)
		}
		return err == nil
	})
	if err == nil {
		err = out.Flush()
	}
	if err == nil {
		err = binary.Write(w, binary.BigEndian, sum.Sum32())
	}
	if err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	return nil
}

// Restore replaces the content of the store with a snapshot. It reads and checks the whole snapshot first, so a damaged
// one changes nothing. All watches of the store end with storage.ErrWatchClosed. Earlier cursors and continue tokens
// are storage.ErrCompacted. Later versions never repeat earlier ones.
func (b *Backend) Restore(ctx context.Context, r io.Reader) error {
	if err := b.begin(ctx); err != nil {
		return err
	}
	items, err := readSnapshot(ctx, r)
	if err != nil {
		return fmt.Errorf("restore snapshot: %w", err)
	}
	s := b.handle.store
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.restore)
	s.at++ // so that earlier positions are compacted
	s.reset()
	for _, it := range items {
		it.at, it.revision, it.createRevision, it.writes = s.at, int64(s.at), int64(s.at), 1
		s.load(it)
	}
	return nil
}

// checksumReader computes a checksum of the bytes it reads.
type checksumReader struct {
	*bufio.Reader
	sum hash.Hash32
}

func (s checksumReader) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.sum.Write(p[:n])
	return n, err
}

func (s checksumReader) ReadByte() (byte, error) {
	c, err := s.Reader.ReadByte()
	if err == nil {
		s.sum.Write([]byte{c})
	}
	return c, err
}

func readSnapshot(ctx context.Context, r io.Reader) ([]*item, error) {
	damaged := func(problem string) error { return fmt.Errorf("%w: the snapshot %s", storage.ErrInvalid, problem) }
	in := checksumReader{bufio.NewReader(r), crc32.New(castagnoli)}
	magic := make([]byte, len(snapshotMagic))
	if _, err := io.ReadFull(in, magic); err != nil || string(magic) != snapshotMagic {
		return nil, damaged("has no snapshot header")
	}
	var count uint64
	if err := binary.Read(in, binary.BigEndian, &count); err != nil {
		return nil, damaged("is truncated")
	}
	var items []*item
	for range count {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		res := new(resourcepb.Resource)
		if err := protodelim.UnmarshalFrom(in, res); err != nil {
			return nil, damaged("is truncated or damaged")
		}
		k, err := check.Resource(res, 0)
		if err != nil || res.Version == "" || len(items) > 0 && items[len(items)-1].key.Compare(k) >= 0 {
			return nil, damaged("has an invalid or repeated resource")
		}
		items = append(items, &item{key: k, resource: res, size: codec.Size(res)})
	}
	want := in.sum.Sum32()
	var sum uint32
	if err := binary.Read(in, binary.BigEndian, &sum); err != nil || sum != want {
		return nil, damaged("is truncated or damaged: the checksum differs")
	}
	if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
		return nil, damaged("has trailing data")
	}
	return items, nil
}
