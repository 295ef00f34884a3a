package faults

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// request is a request to a process.
type request struct {
	ID          uint64
	Method      string
	Timeout     time.Duration // time until the deadline; 0: no deadline
	Watch       uint64
	Consistency storage.ReadConsistency
	Type        storage.UnversionedType
	Tenancy     []byte
	Message     []byte // a resource or an id
	Ops         []wireOp
	Text        string // a URL, version, name prefix
	Cursor      string
	Limit       int
	Revision    int64
	Continue    string
}

// response is the response to a request.
type response struct {
	ID       uint64
	Err      *wireError
	Messages [][]byte // an empty one is nil
	Cursor   string
	Continue string
	Watch    uint64
	Number   int     // MaxOps of a Transactor; 1 for a watch that is no Bookmarker
	Can      [3]bool // Pager, Resumer, Transactor
}

type wireOp struct {
	Write, Delete, Check []byte
	Version              string
	Present              bool
}

// wireError is the part of an error that the contract defines.
type wireError struct {
	Text string
	Is   []int // of sentinels
	Op   int   // the index of an OpError, plus one
}

var sentinels = []error{
	storage.ErrNotFound, storage.ErrCASFailure, storage.ErrWrongUid, storage.ErrInconsistent, storage.ErrInvalid, storage.ErrTooLarge,
	storage.ErrWatchClosed, storage.ErrCompacted, storage.ErrClosed, context.DeadlineExceeded, context.Canceled,
}

func newWireError(err error) *wireError {
	if err == nil {
		return nil
	}
	e := &wireError{Text: err.Error()}
	for i, sentinel := range sentinels {
		if errors.Is(err, sentinel) {
			e.Is = append(e.Is, i)
		}
	}
	var op *storage.OpError
	if errors.As(err, &op) {
		e.Op, e.Text = op.Index+1, op.Err.Error()
	}
	return e
}

// remoteError is an error of another process.
type remoteError struct {
	text string
	is   []error
}

func (e *remoteError) Error() string   { return e.text }
func (e *remoteError) Unwrap() []error { return e.is }

// err returns the error for a caller with ctx. If the other process reports the end of the context, the error of ctx replaces it,
// because the deadline is the caller's.
func (e *wireError) err(ctx context.Context) error {
	if e == nil {
		return nil
	}
	decoded := &remoteError{text: e.Text}
	for _, i := range e.Is {
		is := sentinels[i]
		if over := ctx.Err(); over != nil && (is == context.DeadlineExceeded || is == context.Canceled) {
			is = over
		}
		decoded.is = append(decoded.is, is)
	}
	if e.Op > 0 {
		return &storage.OpError{Index: e.Op - 1, Err: decoded}
	}
	return decoded
}

// marshal returns a message's bytes, or nil for nil.
func marshal[M proto.Message](m M) []byte {
	if !m.ProtoReflect().IsValid() {
		return nil
	}
	b, err := proto.MarshalOptions{}.Marshal(m)
	if err != nil {
		panic(err) // only text that is no UTF-8, which the suite writes nowhere
	}
	return b
}

func marshalAll[M proto.Message](all []M) (out [][]byte) {
	for _, m := range all {
		out = append(out, marshal(m))
	}
	return out
}

func unmarshal[T any, M interface {
	*T
	proto.Message
}](b []byte) M {
	if len(b) == 0 {
		return nil
	}
	m := M(new(T))
	if err := proto.Unmarshal(b, m); err != nil {
		panic(err) // the other side is this same program
	}
	return m
}

func unmarshalResources(all [][]byte) (out []*resourcepb.Resource) {
	for _, b := range all {
		out = append(out, unmarshal[resourcepb.Resource](b))
	}
	return out
}
