// Package spill stores the rows of a snapshot that were copied out of a database, so that no read transaction stays open while a
// caller consumes them: in memory up to a limit, and beyond it in an unnamed temporary file.
package spill

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// Spool is a sequence of byte records. One goroutine appends them; afterwards any number of goroutines read them.
type Spool struct {
	memory int
	head   []byte // all records while there is no file; at most memory bytes
	file   *os.File
	out    *bufio.Writer
	name   string // set if the system cannot unlink an open file: removed by Close
	tail   int64  // bytes in the file
	count  int
	frame  [binary.MaxVarintLen64]byte
}

// New returns an empty spool that stays in memory up to memory bytes.
func New(memory int) *Spool { return &Spool{memory: memory} }

// Append adds a copy of a record.
func (s *Spool) Append(record []byte) error {
	frame := s.frame[:binary.PutUvarint(s.frame[:], uint64(len(record)))]
	if s.file == nil {
		if len(s.head)+len(frame)+len(record) <= s.memory {
			s.head = append(append(s.head, frame...), record...)
			s.count++
			return nil
		}
		if err := s.Spill(); err != nil {
			return err
		}
	}
	if _, err := s.out.Write(frame); err != nil {
		return fmt.Errorf("write a temporary file: %w", err)
	}
	if _, err := s.out.Write(record); err != nil {
		return fmt.Errorf("write a temporary file: %w", err)
	}
	s.tail += int64(len(frame) + len(record))
	s.count++
	return nil
}

// Spill moves the records in memory to the file, which it creates if necessary; later records are appended there. There must be no
// concurrent reader.
func (s *Spool) Spill() error {
	if s.file != nil {
		return nil
	}
	if err := s.open(); err != nil {
		return err
	}
	_, err := s.out.Write(s.head)
	if err == nil {
		err = s.out.Flush()
	}
	if err != nil {
		return fmt.Errorf("write a temporary file: %w", err)
	}
	s.tail, s.head = int64(len(s.head)), nil
	return nil
}

func (s *Spool) open() error {
	file, err := os.CreateTemp("", "ashlar-snapshot-*")
	if err != nil {
		return fmt.Errorf("make room for a snapshot: %w", err)
	}
	// The file is unlinked immediately, so it disappears with the process, however the process ends.
	if err := os.Remove(file.Name()); err != nil {
		s.name = file.Name()
	}
	s.file, s.out = file, bufio.NewWriterSize(file, 64<<10)
	return nil
}

// Seal ends the append phase. It must be called before the first read.
func (s *Spool) Seal() error {
	if s.out == nil {
		return nil
	}
	if err := s.out.Flush(); err != nil {
		return fmt.Errorf("write a temporary file: %w", err)
	}
	return nil
}

// Count returns the number of records.
func (s *Spool) Count() int { return s.count }

// Memory returns the number of bytes held in memory.
func (s *Spool) Memory() int64 { return int64(len(s.head)) }

// Size returns the number of bytes held in memory and in the file.
func (s *Spool) Size() int64 { return int64(len(s.head)) + s.tail }

// Close frees the spool's resources. Later reads fail. Closing twice is allowed.
func (s *Spool) Close() error {
	s.head, s.memory = nil, 0
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	if s.name != "" {
		err = errors.Join(err, os.Remove(s.name))
	}
	return err
}

// Reader reads records in order. It is not safe for concurrent use.
type Reader struct {
	spool  *Spool
	offset int64
	in     *bufio.Reader // over the file, from the first read there
	buf    []byte
}

// Read returns a reader that starts at an offset: 0, or a result of Reader.Offset.
func (s *Spool) Read(offset int64) *Reader { return &Reader{spool: s, offset: offset} }

// Offset returns the start of the next record.
func (r *Reader) Offset() int64 { return r.offset }

// Next returns the next record, which is valid until the next call, or [io.EOF] after the last one.
func (r *Reader) Next() ([]byte, error) {
	s := r.spool
	if r.offset < 0 || r.offset > s.Size() {
		return nil, fmt.Errorf("read a snapshot at %d of %d bytes", r.offset, s.Size())
	}
	if r.offset == s.Size() {
		return nil, io.EOF
	}
	if head := int64(len(s.head)); r.offset < head {
		size, n := binary.Uvarint(s.head[r.offset:])
		if n <= 0 || size > uint64(head-r.offset-int64(n)) {
			return nil, errors.New("read a snapshot: broken record")
		}
		begin := r.offset + int64(n)
		r.offset = begin + int64(size)
		return s.head[begin:r.offset:r.offset], nil
	}
	return r.fromFile()
}

func (r *Reader) fromFile() ([]byte, error) {
	s := r.spool
	if r.in == nil {
		at := r.offset - int64(len(s.head))
		r.in = bufio.NewReaderSize(io.NewSectionReader(s.file, at, s.tail-at), 64<<10)
	}
	size, err := binary.ReadUvarint(r.in)
	if err != nil {
		return nil, fmt.Errorf("read a temporary file: %w", asUnexpectedEOF(err))
	}
	frame := int64(binary.PutUvarint(make([]byte, binary.MaxVarintLen64), size))
	if left := s.Size() - r.offset - frame; left < 0 || size > uint64(left) {
		return nil, errors.New("read a snapshot: broken record")
	}
	if uint64(cap(r.buf)) < size {
		r.buf = make([]byte, size)
	}
	r.buf = r.buf[:size]
	if _, err := io.ReadFull(r.in, r.buf); err != nil {
		return nil, fmt.Errorf("read a temporary file: %w", asUnexpectedEOF(err))
	}
	r.offset += frame + int64(size)
	return r.buf, nil
}

// asUnexpectedEOF turns an early end of the file into io.ErrUnexpectedEOF, because io.EOF means the end of the records.
func asUnexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
