package migrate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// wrapped returns a file with this content and a valid checksum.
func wrapped(content []byte) []byte {
	var file bytes.Buffer
	file.WriteString(fileMagic)
	packed, err := zstd.NewWriter(&file)
	if err != nil {
		panic(err)
	}
	sum := sha256.Sum256(content)
	_, _ = packed.Write(append(bytes.Clone(content), sum[:]...))
	_ = packed.Close()
	return file.Bytes()
}

// A file is an export of resources in order, or it is refused. The input is used as a file, and as the content of a file with a
// valid checksum.
func FuzzFile(f *testing.F) {
	from := inmem.New(nil)
	defer from.Close()
	fill(f, from, []*resourcepb.Resource{small("a", "1"), small("b", "2")})
	var file bytes.Buffer
	if _, err := Export(context.Background(), from, &file); err != nil {
		f.Fatal(err)
	}
	f.Add(file.Bytes())
	f.Add(file.Bytes()[:file.Len()-5])
	f.Add([]byte(fileMagic))
	data, err := codec.Encode(small("a", "1"))
	if err != nil {
		f.Fatal(err)
	}
	one := append(binary.AppendUvarint(nil, uint64(len(data))), data...)
	end := func(n byte) []byte { return []byte{0, 0, 0, 0, 0, 0, 0, 0, n, 0, 0, 0, 0, 0, 0, 0, 1} }
	f.Add(append(bytes.Clone(one), end(1)...))
	f.Add(append(bytes.Clone(one), end(2)...))
	f.Add(append(append(bytes.Clone(one), one...), end(2)...))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, file := range [][]byte{content, wrapped(content)} {
			s, err := Check(context.Background(), bytes.NewReader(file))
			if err != nil {
				if !errors.Is(err, storage.ErrInvalid) {
					t.Errorf("%v, expected ErrInvalid", err)
				}
				continue
			}
			to := inmem.New(nil)
			var again bytes.Buffer
			if _, err := Import(context.Background(), bytes.NewReader(file), to, nil); err != nil {
				t.Errorf("it was checked, and then %v", err)
			}
			if back, err := Export(context.Background(), to, &again); err != nil || back.Resources != s.Resources {
				t.Errorf("%+v was restored as %+v, %v", s, back, err)
			}
			_ = to.Close()
		}
	})
}

// The note of a migration is decoded, or refused with an error that names its location.
func FuzzNote(f *testing.F) {
	b := inmem.New(nil)
	f.Cleanup(func() { _ = b.Close() })
	store := moverOf(f, b)
	f.Add([]byte(`{"format":1,"source":"s","phase":"copy","cursor":"c","started":"2020-01-01T00:00:00Z"}`))
	f.Add([]byte(`{"format":2}`))
	f.Add([]byte(`{"format":1,"beat":-1}`))
	f.Add([]byte(``))
	f.Fuzz(func(t *testing.T, note []byte) {
		ctx := context.Background()
		_, revision, err := store.ReadNote(ctx, migrationNote)
		if err == nil {
			revision, err = store.WriteNote(ctx, migrationNote, note, revision)
		}
		if err != nil {
			t.Fatal(err)
		}
		s, at, err := readState(ctx, store)
		if err == nil && (s == nil || at != revision || s.Format != stateFormat) {
			t.Errorf("%q is decoded as %+v at %q, expected %q", note, s, at, revision)
		}
		if err != nil && s != nil {
			t.Errorf("%q is decoded as %+v, with %v", note, s, err)
		}
	})
}
