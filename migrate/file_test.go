package migrate

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

func TestExportAndImport(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds() {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			from, to := fixture.Open(t, kind.url(t)), fixture.Open(t, kind.url(t))
			all := zoo(300)
			fill(t, from, all)
			var file bytes.Buffer
			s, err := Export(limited(t), from, &file)
			if err != nil || s.Resources != len(all) {
				t.Fatalf("%+v, %v", s, err)
			}
			checked, err := Check(limited(t), bytes.NewReader(file.Bytes()))
			if err != nil || *checked != *s {
				t.Fatalf("checked %+v, %v, expected %+v", checked, err, s)
			}
			// The export may be preceded by other data.
			in := bytes.NewReader(append([]byte("before"), file.Bytes()...))
			if _, err := in.Seek(6, io.SeekStart); err != nil {
				t.Fatal(err)
			}
			r, err := Import(limited(t), in, to, nil)
			if err != nil || r.Work.Creations != int64(len(all)) {
				t.Fatalf("%+v, %v", r.Work, err)
			}
			wantEqual(t, from, to)
			if _, err := Import(limited(t), bytes.NewReader(file.Bytes()), to, nil); !errors.Is(err, ErrNotEmpty) {
				t.Errorf("got %v, expected ErrNotEmpty", err)
			}
			r, err = Import(limited(t), bytes.NewReader(file.Bytes()), to, &Options{Into: Mirror})
			if err != nil || r.Work != (Counts{Unchanged: int64(len(all))}) {
				t.Errorf("the second time: %+v, %v", r.Work, err)
			}
		})
	}
}

func TestImportIntoATargetThatHoldsSomething(t *testing.T) {
	t.Parallel()
	from := fixture.Open(t, "mem://")
	fill(t, from, []*resourcepb.Resource{small("same", "1"), small("changed", "new")})
	var file bytes.Buffer
	if _, err := Export(limited(t), from, &file); err != nil {
		t.Fatal(err)
	}
	for into, want := range map[Into]map[string]string{
		Merge:     {"same": "1", "changed": "old", "own": "1"},
		Overwrite: {"same": "1", "changed": "new", "own": "1"},
		Mirror:    {"same": "1", "changed": "new"},
	} {
		to := fixture.Open(t, "mem://")
		fill(t, to, []*resourcepb.Resource{small("same", "1"), small("changed", "old"), small("own", "1")})
		_, err := Import(limited(t), bytes.NewReader(file.Bytes()), to, &Options{Into: into})
		if (into == Merge) != errors.Is(err, ErrConflict) || into != Merge && err != nil {
			t.Errorf("into %d: %v", into, err)
		}
		got := contents(t, to)
		for _, name := range []string{"same", "changed", "own"} {
			if got[name] != want[name] {
				t.Errorf("into %d: %s is %q, expected %q", into, name, got[name], want[name])
			}
		}
	}
}

// TestDamagedExports alters and truncates an export at every byte.
func TestDamagedExports(t *testing.T) {
	t.Parallel()
	from, to := fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
	fill(t, from, []*resourcepb.Resource{small("a", "1"), small("b", "2"), small("c", "3")})
	var file bytes.Buffer
	if _, err := Export(limited(t), from, &file); err != nil {
		t.Fatal(err)
	}
	refused := func(what string, at int, data []byte) {
		t.Helper()
		if _, err := Import(limited(t), bytes.NewReader(data), to, nil); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("%s at %d: got %v, expected ErrInvalid", what, at, err)
		}
	}
	whole := file.Bytes()
	for i := range whole {
		refused("cut", i, whole[:i])
		altered := bytes.Clone(whole)
		altered[i] ^= 0x20
		if sameContent(whole, altered) {
			continue // an unused bit of the compression
		}
		refused("altered", i, altered)
	}
	refused("longer", 0, append(bytes.Clone(whole), 'x'))
	refused("twice", 0, append(bytes.Clone(whole), whole...))
	// The contents are checked as well, even if the compression is intact.
	inner := unpack(t, whole)
	for i := 0; i < len(inner); i += 3 {
		altered := bytes.Clone(inner)
		altered[i] ^= 1
		refused("altered inside", i, pack(t, altered))
		refused("cut inside", i, pack(t, inner[:i]))
	}
	refused("longer inside", 0, pack(t, append(bytes.Clone(inner), 0)))
	if got := contents(t, to); len(got) != 0 {
		t.Errorf("a damaged export has written %d resources", len(got))
	}
}

func unpack(t *testing.T, file []byte) []byte {
	t.Helper()
	data, err := unpacked(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func unpacked(file []byte) ([]byte, error) {
	d, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(1<<30))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.DecodeAll(file[len(fileMagic):], nil)
}

func sameContent(a, b []byte) bool {
	if string(b[:len(fileMagic)]) != fileMagic {
		return false
	}
	one, _ := unpacked(a)
	other, err := unpacked(b)
	return err == nil && bytes.Equal(one, other)
}

func pack(t *testing.T, data []byte) []byte {
	t.Helper()
	e, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	return e.EncodeAll(data, []byte(fileMagic))
}

// A resource of the maximum size can be exported and imported. An import reports the comparison, which fails if another program writes.
func TestImportCompares(t *testing.T) {
	t.Parallel()
	from := fixture.Open(t, "mem://")
	res := small("large", "")
	for codec.Size(res) != check.MaxSize {
		res.Data.Value = make([]byte, len(res.Data.Value)+check.MaxSize-codec.Size(res))
	}
	write(t, from, res)
	var file bytes.Buffer
	if _, err := Export(limited(t), from, &file); err != nil {
		t.Fatal(err)
	}
	r, err := Import(limited(t), bytes.NewReader(file.Bytes()), fixture.Open(t, "mem://"), nil)
	if err != nil || r.Report == nil || r.Report.Target != 1 || r.Report.Largest != check.MaxSize {
		t.Errorf("%+v, %v", r, err)
	}
	to, tap := fixture.Open(t, "mem://"), newTap()
	tap.at = func(_ int, before bool, _ string) error {
		if !before {
			write(t, to, small("other", "1"))
		}
		return nil
	}
	if r, err := Import(limited(t), bytes.NewReader(file.Bytes()), &tapped{Backend: to, tap: tap, role: "to"}, nil); !errors.Is(err, ErrDiffers) || r.Report.Extra != 1 {
		t.Errorf("beside another program: %+v, %v", r, err)
	}
}
