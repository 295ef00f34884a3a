package web

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage/resourcepb"
)

// watch writes a stream of events until the client disconnects or the service ends it.
func (h *handler) watch(w http.ResponseWriter, r *request) error {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		return refuse(http.StatusMethodNotAllowed, "a watch has no end: its method is GET")
	}
	interval, err := r.query.interval()
	if err != nil {
		return err
	}
	timeout, err := r.query.seconds("timeout")
	if err != nil {
		return err
	}
	codecOf := h.codecOf(r.target)
	ctx, cancel := context.WithCancel(r.Context())
	if timeout > 0 {
		ctx, cancel = context.WithTimeoutCause(r.Context(), timeout, errTimeout)
	}
	defer cancel()
	stream, err := h.client.WatchList(ctx, &resourcepb.WatchListRequest{
		Type: r.target.typ, Tenancy: r.query.tenancy(), NamePrefix: r.query.get("name_prefix"),
		// A browser repeats the query when it connects again, so the event is the later position.
		Cursor: cmp.Or(r.Header.Get("Last-Event-Id"), r.query.get("cursor")), Cursors: true, Before: r.query.has("before"), BookmarkInterval: interval,
	})
	if err != nil {
		return err
	}
	// An open stream may have no event for a long time, but has a header. A stream without a header has ended with the error of Recv.
	header, err := stream.Header()
	if err == nil && header == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		return err
	}
	out := newLines(w, h.stallTimeout, strings.Contains(r.Header.Get("Accept"), eventsType))
	events := receive(ctx, stream)
	defer func() {
		cancel()
		for range events { // until the receiver ends
		}
	}()
	for {
		got, err := out.next(events)
		if err != nil {
			return nil // the client has disconnected, or does not read
		}
		if got.panicErr != nil {
			panic(got.panicErr)
		}
		if got.err != nil {
			if errors.Is(context.Cause(ctx), errTimeout) {
				got.err = errTimeout
			}
			out.end(r.Context(), got.err)
			return nil
		}
		if err := out.event(codecOf(resourceIn(got.event)), got.event); err != nil {
			return nil
		}
	}
}

// errTimeout is the end of a watch with a timeout.
var errTimeout = grpcstatus.Error(codes.DeadlineExceeded, "the timeout of the watch has passed: resume from the last cursor")

// recvResult is the result of a Recv: an event, an error, or the cause and the stack of a panic.
type recvResult struct {
	event    *resourcepb.WatchEvent
	err      error
	panicErr error
}

// receive returns the results of Recv up to the first error, one at a time: events that the client has not read yet stay with the
// service. The channel is closed at the end, or soon after ctx is done. A panic in Recv, which runs the hooks of the types, is a
// result. In this goroutine it would end the process, but the server recovers a panic of the goroutine that serves the request.
func receive(ctx context.Context, stream grpc.ServerStreamingClient[resourcepb.WatchEvent]) <-chan recvResult {
	events := make(chan recvResult)
	go func() {
		defer close(events)
		for {
			got := recv(stream)
			select {
			case events <- got:
			case <-ctx.Done():
				return
			}
			if got.err != nil || got.panicErr != nil {
				return
			}
		}
	}()
	return events
}

func recv(stream grpc.ServerStreamingClient[resourcepb.WatchEvent]) (got recvResult) {
	defer func() {
		if cause := recover(); cause != nil {
			got = recvResult{panicErr: fmt.Errorf("%v\n%s", cause, debug.Stack())}
		}
	}()
	got.event, got.err = stream.Recv()
	return got
}

// resourceIn returns the resource in an event, or nil.
func resourceIn(ev *resourcepb.WatchEvent) *resourcepb.Resource {
	if res := ev.GetUpsert().GetResource(); res != nil {
		return res
	}
	return ev.GetDelete().GetResource()
}

// lines is an unfinished answer of lines.
type lines struct {
	w            http.ResponseWriter
	control      *http.ResponseController
	stallTimeout time.Duration
	asEvents     bool // as server-sent events
}

// eventsType is the content type of server-sent events.
const eventsType = "text/event-stream"

// newLines starts an answer of lines.
func newLines(w http.ResponseWriter, stall time.Duration, events bool) *lines {
	l := &lines{w: w, control: http.NewResponseController(w), stallTimeout: stall}
	if events {
		l.asEvents = true
		w.Header().Set("Content-Type", eventsType)
	} else {
		w.Header().Set("Content-Type", linesType)
	}
	w.WriteHeader(http.StatusOK)
	if l.flush() == nil { // net/http has read the body of the request, or closes the connection after the answer
		_ = l.control.SetReadDeadline(time.Time{}) // it would end the watch
	}
	return l
}

// next returns the next result. It flushes all lines before it blocks.
func (l *lines) next(events <-chan recvResult) (recvResult, error) {
	var got recvResult
	var ok bool
	select {
	case got, ok = <-events:
	default:
		if err := l.flush(); err != nil {
			return got, err
		}
		got, ok = <-events
	}
	if !ok {
		got.err = context.Canceled
	}
	return got, nil
}

// flush flushes the written lines. Then it clears the deadline, which would end an idle stream of HTTP/2.
func (l *lines) flush() error {
	_ = l.control.SetWriteDeadline(time.Now().Add(l.stallTimeout))
	err := l.control.Flush()
	if err == nil {
		_ = l.control.SetWriteDeadline(time.Time{})
	}
	return err
}

// event writes an event.
func (l *lines) event(f codec, ev *resourcepb.WatchEvent) error {
	text, err := f.encodeEvent(ev)
	if err != nil {
		l.error(failureOf(err))
		return err
	}
	if l.asEvents && ev.GetCursor() != "" { // the client sends it as Last-Event-ID when it connects again
		text = append([]byte("id: "+ev.GetCursor()+"\n"), l.data(text)...)
	} else {
		text = l.data(text)
	}
	return l.write(text)
}

// data returns a line as a server-sent event, if the answer has those.
func (l *lines) data(line []byte) []byte {
	if !l.asEvents || len(line) == 0 {
		return line
	}
	return append(append([]byte("data: "), line...), '\n')
}

// write writes a text, which the client must accept within a timeout.
func (l *lines) write(text []byte) error {
	_ = l.control.SetWriteDeadline(time.Now().Add(l.stallTimeout))
	_, err := l.w.Write(text)
	return err
}

// end writes the reason of the end of the stream.
func (l *lines) end(request context.Context, err error) {
	switch {
	case request.Err() != nil:
		err = grpcstatus.Error(codes.Unavailable, "the server is shutting down: retry, or connect to another server")
	case errors.Is(err, io.EOF):
		err = grpcstatus.Error(codes.Unavailable, "the service has ended the stream")
	}
	l.error(failureOf(err))
}

func (l *lines) error(f *failure) {
	if text, err := json.Marshal(map[string]*failure{"error": f}); err == nil {
		_, _ = l.w.Write(l.data(append(text, '\n')))
		_ = l.flush()
	}
}
