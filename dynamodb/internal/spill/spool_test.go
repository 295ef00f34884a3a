package spill_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/ashlar-dev/storage/dynamodb/internal/spill"
)

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		records := rapid.SliceOf(rapid.SliceOfN(rapid.Byte(), 0, 300)).Draw(t, "records")
		s := spill.New(rapid.IntRange(0, 2000).Draw(t, "memory"))
		defer s.Close()
		for _, r := range records {
			if err := s.Append(r); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Seal(); err != nil {
			t.Fatal(err)
		}
		if rapid.Bool().Draw(t, "spill") {
			if err := s.Spill(); err != nil {
				t.Fatal(err)
			}
			if s.Memory() != 0 {
				t.Fatalf("%d bytes remain in memory", s.Memory())
			}
		}
		if s.Count() != len(records) {
			t.Fatalf("Count is %d after %d records", s.Count(), len(records))
		}
		offsets := []int64{0}
		reader := s.Read(0)
		for i, want := range records {
			got, err := reader.Next()
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("record %d is %q, %v; appended %q", i, got, err, want)
			}
			offsets = append(offsets, reader.Offset())
		}
		if _, err := reader.Next(); err != io.EOF {
			t.Fatalf("after the last record: %v, expected io.EOF", err)
		}
		if reader.Offset() != s.Size() {
			t.Fatalf("the last offset is %d of %d bytes", reader.Offset(), s.Size())
		}
		if len(records) > 0 {
			i := rapid.IntRange(0, len(records)-1).Draw(t, "start")
			got, err := s.Read(offsets[i]).Next()
			if err != nil || !bytes.Equal(got, records[i]) {
				t.Fatalf("record %d read by its offset is %q, %v; appended %q", i, got, err, records[i])
			}
		}
	})
}

func TestSeveralReaders(t *testing.T) {
	t.Parallel()
	s := spill.New(100)
	defer s.Close()
	for i := range 1000 {
		if err := s.Append(fmt.Appendf(nil, "record %d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Seal(); err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			r := s.Read(0)
			for i := range 1000 {
				got, err := r.Next()
				if err != nil || string(got) != fmt.Sprintf("record %d", i) {
					t.Errorf("record %d is %q, %v", i, got, err)
					return
				}
			}
		})
	}
	readers.Wait()
}

// Not parallel: it changes the folder for temporary files.
func TestCloseRemovesFile(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	s := spill.New(0)
	if err := s.Append([]byte("on disk")); err != nil {
		t.Fatal(err)
	}
	if err := s.Seal(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 0 {
		t.Fatalf("Close left the files %v, %v", left, err)
	}
	if _, err := s.Read(0).Next(); err == nil || err == io.EOF {
		t.Fatalf("reading a closed spool: %v, expected an error", err)
	}
}

func TestMissingTempDir(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()+"/absent")
	s := spill.New(4)
	if err := s.Append([]byte("too long for memory")); err == nil {
		t.Fatal("no error although the temporary folder is missing")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestInvalidOffsets(t *testing.T) {
	t.Parallel()
	for _, memory := range []int{0, 1000} {
		s := spill.New(memory)
		defer s.Close()
		for range 3 {
			if err := s.Append(bytes.Repeat([]byte{0xff}, 20)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Seal(); err != nil {
			t.Fatal(err)
		}
		for _, offset := range []int64{-1, 1, s.Size() + 1, 1 << 62} {
			if _, err := s.Read(offset).Next(); err == nil || err == io.EOF {
				t.Errorf("memory %d: reading at %d: %v, expected an error", memory, offset, err)
			}
		}
	}
}
