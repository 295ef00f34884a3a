package faults

import (
	"context"
	"encoding/gob"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// processEnv is set in the environment of a serving process.
const processEnv = "ASHLAR_FAULTS_PROCESS"

// ServeProcess returns false at once, unless [Processes] started the program. In that case it serves a handle until its parent
// closes the pipe, and returns true; the program should then exit.
func ServeProcess() bool {
	if os.Getenv(processEnv) == "" {
		return false
	}
	s := &processServer{out: gob.NewEncoder(os.Stdout), cancels: map[uint64]context.CancelFunc{}, watches: map[uint64]storage.Watch{}}
	s.serve(os.Stdin)
	return true
}

// processServer is the process's end of the pipes.
type processServer struct {
	b storage.Backend

	mu      sync.Mutex
	out     *gob.Encoder
	cancels map[uint64]context.CancelFunc
	watches map[uint64]storage.Watch
}

func (s *processServer) serve(in io.Reader) {
	requests := gob.NewDecoder(in)
	var answering sync.WaitGroup
	for {
		var q request
		if requests.Decode(&q) != nil {
			break // the parent has exited
		}
		if q.Method == "cancel" {
			s.mu.Lock()
			if cancel := s.cancels[q.ID]; cancel != nil {
				cancel()
			}
			s.mu.Unlock()
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		if q.Timeout != 0 {
			ctx, cancel = context.WithTimeout(context.Background(), q.Timeout)
		}
		s.mu.Lock()
		s.cancels[q.ID] = cancel
		s.mu.Unlock()
		answering.Go(func() {
			r, err := s.do(ctx, &q)
			cancel()
			r.ID, r.Err = q.ID, newWireError(err)
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.cancels, q.ID)
			_ = s.out.Encode(&r) // if the parent has exited, the next Decode fails
		})
	}
	if s.b != nil {
		_ = s.b.Close()
	}
	answering.Wait()
}

// do executes a request. Requests match the capabilities of the handle.
func (s *processServer) do(ctx context.Context, q *request) (r response, err error) {
	id, tenancy := func() *resourcepb.ID { return unmarshal[resourcepb.ID](q.Message) }, unmarshal[resourcepb.Tenancy](q.Tenancy)
	var res *resourcepb.Resource
	var all []*resourcepb.Resource
	switch q.Method {
	case "open":
		if s.b, err = storage.Open(ctx, q.Text); err == nil {
			_, r.Can[0] = storage.As[storage.Pager](s.b)
			_, r.Can[1] = storage.As[storage.Resumer](s.b)
			var t storage.Transactor
			if t, r.Can[2] = storage.As[storage.Transactor](s.b); t != nil {
				r.Number = t.MaxOps()
			}
		}
	case "close":
		err = s.b.Close()
	case "read":
		res, err = s.b.Read(ctx, q.Consistency, id())
		r.Messages = marshalAll([]*resourcepb.Resource{res})
	case "write":
		res, err = s.b.WriteCAS(ctx, unmarshal[resourcepb.Resource](q.Message))
		r.Messages = marshalAll([]*resourcepb.Resource{res})
	case "delete":
		err = s.b.DeleteCAS(ctx, id(), q.Text)
	case "commit":
		t, _ := storage.As[storage.Transactor](s.b)
		var ops []storage.Op
		for _, op := range q.Ops {
			ops = append(ops, storage.Op{
				Write: unmarshal[resourcepb.Resource](op.Write), Delete: unmarshal[resourcepb.ID](op.Delete),
				Check: unmarshal[resourcepb.ID](op.Check), Version: op.Version, Present: op.Present,
			})
		}
		all, err = t.Commit(ctx, ops)
		r.Messages = marshalAll(all)
	case "list":
		all, err = s.b.List(ctx, q.Consistency, q.Type, tenancy, q.Text)
		r.Messages = marshalAll(all)
	case "page":
		p, _ := storage.As[storage.Pager](s.b)
		var page storage.Page
		page, err = p.ListPage(ctx, q.Type, tenancy, q.Text, storage.ListOptions{Consistency: q.Consistency, Limit: q.Limit, Continue: q.Continue, Revision: q.Revision})
		r.Messages, r.Cursor, r.Continue = marshalAll(page.Resources), page.Cursor, page.Continue
	case "owned":
		var ids []*resourcepb.ID
		ids, err = s.b.OwnerReferences(ctx, id())
		r.Messages = marshalAll(ids)
	case "watch", "resume":
		var w storage.Watch
		if q.Method == "watch" {
			w, err = s.b.WatchList(ctx, q.Type, tenancy, q.Text)
		} else {
			resumer, _ := storage.As[storage.Resumer](s.b)
			w, err = resumer.WatchFrom(ctx, q.Type, tenancy, q.Text, q.Cursor)
		}
		if err == nil {
			s.mu.Lock()
			r.Watch = q.ID
			s.watches[r.Watch] = w
			s.mu.Unlock()
			if _, ok := w.(storage.Bookmarker); !ok {
				r.Number = 1
			}
		}
	case "next", "bookmark", "stop":
		return s.doWatch(ctx, q)
	default:
		err = fmt.Errorf("faults: unknown request %q to a process", q.Method)
	}
	return r, err
}

func (s *processServer) doWatch(ctx context.Context, q *request) (r response, err error) {
	s.mu.Lock()
	w := s.watches[q.Watch]
	if q.Method == "stop" {
		delete(s.watches, q.Watch)
	}
	s.mu.Unlock()
	switch {
	case w == nil:
		err = storage.ErrWatchClosed
	case q.Method == "stop":
		w.Close()
	case q.Method == "bookmark":
		err = w.(storage.Bookmarker).Bookmark(ctx)
	default:
		var ev *resourcepb.WatchEvent
		if ev, err = w.Next(ctx); ev != nil {
			r.Messages = marshalAll([]*resourcepb.WatchEvent{ev})
		}
		r.Cursor = w.Cursor()
	}
	return r, err
}
