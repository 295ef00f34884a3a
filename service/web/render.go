package web

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/ashlar-dev/storage/resourcepb"
)

// answer writes one resource.
func answer(w http.ResponseWriter, f codec, res *resourcepb.Resource) error {
	text, err := f.encodeResource(res)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := writeIndented(&out, text, ""); err != nil {
		return fmt.Errorf("render a resource: %w", err)
	}
	out.WriteByte('\n')
	w.Header().Set("Content-Type", jsonType)
	_, _ = w.Write(out.Bytes()) // the client may have disconnected
	return nil
}

// listAnswer is an unfinished answer with a list. At most one resource is in memory as text.
type listAnswer struct {
	out     *bufio.Writer // it keeps its first error
	buf     bytes.Buffer
	codecOf func(*resourcepb.Resource) codec
	control *http.ResponseController
	count   int
}

// listBuffer is the size of the buffer of a list.
const listBuffer = 32 << 10

// startList starts an answer with a list, whose resources are encoded with the codecs that codecOf returns.
func startList(w http.ResponseWriter, stall time.Duration, codecOf func(*resourcepb.Resource) codec) *listAnswer {
	w.Header().Set("Content-Type", jsonType)
	control := http.NewResponseController(w)
	l := &listAnswer{out: bufio.NewWriterSize(stallWriter{w, control, stall}, listBuffer), codecOf: codecOf, control: control}
	l.buf.WriteString("{\n" + indent + `"resources": [`)
	return l
}

// stallWriter is a response writer whose client must accept each write within a timeout.
type stallWriter struct {
	w       io.Writer
	control *http.ResponseController
	timeout time.Duration
}

// Write writes a part of the body.
func (s stallWriter) Write(b []byte) (int, error) {
	_ = s.control.SetWriteDeadline(time.Now().Add(s.timeout)) // a writer without deadlines has no connection to hold
	return s.w.Write(b)
}

// add writes resources. It panics with http.ErrAbortHandler if it fails: the answer has begun, and its reader has to see that it is incomplete.
func (l *listAnswer) add(resources []*resourcepb.Resource) {
	for _, res := range resources {
		text, err := l.codecOf(res).encodeResource(res)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		if l.count > 0 {
			l.buf.WriteByte(',')
		}
		l.count++
		l.buf.WriteString("\n" + indent + indent)
		if err := writeIndented(&l.buf, text, indent+indent); err != nil {
			panic(http.ErrAbortHandler)
		}
		if _, err := l.buf.WriteTo(l.out); err != nil {
			panic(http.ErrAbortHandler) // the client has disconnected, or does not read
		}
	}
}

// end writes the end of the list, and the non-empty members in extra, whose values are JSON.
func (l *listAnswer) end(extra ...[2]string) {
	if l.count > 0 {
		l.buf.WriteString("\n" + indent)
	}
	l.buf.WriteByte(']')
	for _, b := range extra {
		if b[1] != "" {
			fmt.Fprintf(&l.buf, ",\n%s%s: %s", indent, quote(b[0]), b[1])
		}
	}
	l.buf.WriteString("\n}\n")
	_, _ = l.buf.WriteTo(l.out)
	if l.out.Flush() != nil {
		panic(http.ErrAbortHandler)
	}
	if l.control.Flush() == nil {
		_ = l.control.SetWriteDeadline(time.Time{}) // it would end a later answer on the connection
	}
}

// answerJSON writes a value as JSON.
func answerJSON(w http.ResponseWriter, value any) error {
	text, err := json.MarshalIndent(value, "", indent)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", jsonType)
	_, _ = w.Write(append(text, '\n')) // the client may have disconnected
	return nil
}
