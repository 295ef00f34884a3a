package web

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"

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

// answerList writes resources, each encoded with the codec that codecOf returns, and the non-empty members in extra. At most one resource is in
// memory as text.
func answerList(w http.ResponseWriter, codecOf func(*resourcepb.Resource) codec, resources []*resourcepb.Resource, extra ...[2]string) error {
	w.Header().Set("Content-Type", jsonType)
	out := bufio.NewWriter(w) // it keeps its first error for Flush
	var buf bytes.Buffer
	buf.WriteString("{\n" + indent + `"resources": [`)
	for i, res := range resources {
		text, err := codecOf(res).encodeResource(res)
		if err != nil {
			panic(http.ErrAbortHandler) // the answer has begun: its reader has to see that it is not whole
		}
		if i > 0 {
			buf.WriteByte(',')
		}
		buf.WriteString("\n" + indent + indent)
		if err := writeIndented(&buf, text, indent+indent); err != nil {
			panic(http.ErrAbortHandler)
		}
		_, _ = buf.WriteTo(out)
	}
	if len(resources) > 0 {
		buf.WriteString("\n" + indent)
	}
	buf.WriteByte(']')
	for _, b := range extra {
		if b[1] != "" {
			fmt.Fprintf(&buf, ",\n%s%s: %s", indent, quote(b[0]), quote(b[1]))
		}
	}
	buf.WriteString("\n}\n")
	_, _ = buf.WriteTo(out)
	_ = out.Flush() // the client may have disconnected
	return nil
}
