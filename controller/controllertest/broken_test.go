package controllertest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/ashlar-dev/storage/controller"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
)

// violations collects what a rule reports.
type violations struct {
	mu  sync.Mutex
	all []string
}

func (v *violations) Helper() {}

func (v *violations) Errorf(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.all = append(v.all, fmt.Sprintf(format, args...))
}

// filtered is a client whose streams pass through a filter of events. The filter returns the events to deliver instead of each one.
type filtered struct {
	resourcegrpc.ResourceServiceClient
	filter func(req *resourcepb.WatchListRequest) func(*resourcepb.WatchEvent) []*resourcepb.WatchEvent
}

func (f filtered) WatchList(ctx context.Context, in *resourcepb.WatchListRequest, opts ...grpc.CallOption) (grpc.ServerStreamingClient[resourcepb.WatchEvent], error) {
	stream, err := f.ResourceServiceClient.WatchList(ctx, in, opts...)
	if err != nil {
		return nil, err
	}
	return &filteredStream{ServerStreamingClient: stream, filter: f.filter(in)}, nil
}

type filteredStream struct {
	grpc.ServerStreamingClient[resourcepb.WatchEvent]
	filter func(*resourcepb.WatchEvent) []*resourcepb.WatchEvent
	ready  []*resourcepb.WatchEvent
}

func (s *filteredStream) Recv() (*resourcepb.WatchEvent, error) {
	for len(s.ready) == 0 {
		ev, err := s.ServerStreamingClient.Recv()
		if err != nil {
			return nil, err
		}
		s.ready = s.filter(ev)
	}
	next := s.ready[0]
	s.ready = s.ready[1:]
	return next, nil
}

// withFilter returns parts whose streams pass through a filter.
func withFilter(filter func(req *resourcepb.WatchListRequest) func(*resourcepb.WatchEvent) []*resourcepb.WatchEvent) parts {
	return parts{client: func(c resourcegrpc.ResourceServiceClient) resourcegrpc.ResourceServiceClient {
		return filtered{c, filter}
	}}
}

// unfenced is a client that drops the fence of writes.
type unfenced struct {
	resourcegrpc.ResourceServiceClient
}

func (u unfenced) Write(ctx context.Context, in *resourcepb.WriteRequest, opts ...grpc.CallOption) (*resourcepb.WriteResponse, error) {
	return u.ResourceServiceClient.Write(metadata.NewOutgoingContext(ctx, nil), in, opts...)
}

// broken has a broken runtime for each rule.
var broken = map[string]func() parts{
	"25": func() parts { // items follow the end of the snapshot
		return withFilter(func(req *resourcepb.WatchListRequest) func(*resourcepb.WatchEvent) []*resourcepb.WatchEvent {
			var held []*resourcepb.WatchEvent
			return func(ev *resourcepb.WatchEvent) []*resourcepb.WatchEvent {
				switch {
				case req.GetType().GetKind() != itemType.GetKind() || req.GetCursor() != "":
				case ev.GetBookmark() != nil: // follows the end of the snapshot
					time.Sleep(time.Second)
					return append(held, ev)
				case ev.GetUpsert() != nil:
					held = append(held, ev)
					return nil
				}
				return []*resourcepb.WatchEvent{ev}
			}
		})
	},
	"26": func() parts { // deletions are lost
		return withFilter(func(*resourcepb.WatchListRequest) func(*resourcepb.WatchEvent) []*resourcepb.WatchEvent {
			return func(ev *resourcepb.WatchEvent) []*resourcepb.WatchEvent {
				if ev.GetDelete() != nil {
					return nil
				}
				return []*resourcepb.WatchEvent{ev}
			}
		})
	},
	"27": func() parts { // only the newest state is mapped
		return withFilter(func(*resourcepb.WatchListRequest) func(*resourcepb.WatchEvent) []*resourcepb.WatchEvent {
			return func(ev *resourcepb.WatchEvent) []*resourcepb.WatchEvent {
				if res := ev.GetUpsert().GetResource(); res.GetId().GetType().GetKind() == itemType.GetKind() && text(res) == "b" {
					return nil
				}
				return []*resourcepb.WatchEvent{ev}
			}
		})
	},
	"28": func() parts { return parts{backoff: 5 * time.Millisecond} },
	"29": func() parts { // a requeue is a failure
		return parts{reconciler: func(r controller.Reconciler) controller.Reconciler {
			return controller.ReconcileFunc(func(ctx context.Context, rt controller.Runtime, req controller.Request) error {
				if err := r.Reconcile(ctx, rt, req); err != nil {
					return fmt.Errorf("failed: %v", err)
				}
				return nil
			})
		}}
	},
	"30": func() parts { // a panic is no failure
		return parts{reconciler: func(r controller.Reconciler) controller.Reconciler {
			return controller.ReconcileFunc(func(ctx context.Context, rt controller.Runtime, req controller.Request) error {
				defer func() { _ = recover() }()
				return r.Reconcile(ctx, rt, req)
			})
		}}
	},
	"31": func() parts {
		return parts{client: func(c resourcegrpc.ResourceServiceClient) resourcegrpc.ResourceServiceClient { return unfenced{c} }}
	},
	"32": func() parts { // resources that existed wait until there is no other work
		return parts{reconciler: func(r controller.Reconciler) controller.Reconciler {
			return controller.ReconcileFunc(func(ctx context.Context, rt controller.Runtime, req controller.Request) error {
				if strings.HasPrefix(req.ID.GetName(), "list-") {
					return controller.RequeueAfter(time.Second)
				}
				return r.Reconcile(ctx, rt, req)
			})
		}}
	},
	"33": func() parts { // the old state is not mapped
		return parts{mapper: func(m controller.DependencyMapper) controller.DependencyMapper {
			return func(ctx context.Context, rt controller.Runtime, res *resourcepb.Resource) ([]controller.Request, error) {
				if cached, err := rt.Cache.Get(res.GetId().GetType(), controller.IDIndex, res.GetId()); err != nil || cached.GetVersion() != res.GetVersion() {
					return nil, err
				}
				return m(ctx, rt, res)
			}
		}}
	},
	"34": func() parts { // a reconcile leaves a goroutine
		return parts{reconciler: func(r controller.Reconciler) controller.Reconciler {
			return controller.ReconcileFunc(func(ctx context.Context, rt controller.Runtime, req controller.Request) error {
				go time.Sleep(5 * time.Minute)
				return r.Reconcile(ctx, rt, req)
			})
		}}
	},
	"a reconcile": func() parts { // written items arrive late, and writes bypass the cache
		var direct resourcegrpc.ResourceServiceClient
		p := withFilter(func(*resourcepb.WatchListRequest) func(*resourcepb.WatchEvent) []*resourcepb.WatchEvent {
			return func(ev *resourcepb.WatchEvent) []*resourcepb.WatchEvent {
				if ev.GetUpsert().GetResource().GetId().GetType().GetKind() == itemType.GetKind() {
					time.Sleep(time.Second)
				}
				return []*resourcepb.WatchEvent{ev}
			}
		})
		delay := p.client
		p.client = func(c resourcegrpc.ResourceServiceClient) resourcegrpc.ResourceServiceClient {
			direct = c
			return delay(c)
		}
		p.reconciler = func(r controller.Reconciler) controller.Reconciler {
			return controller.ReconcileFunc(func(ctx context.Context, rt controller.Runtime, req controller.Request) error {
				rt.Client = direct
				return r.Reconcile(ctx, rt, req)
			})
		}
		return p
	},
}

func TestSuiteDetectsBrokenRuntimes(t *testing.T) {
	t.Parallel()
	for _, r := range rules {
		number := r.name[:2]
		if number == "a " {
			number = "a reconcile"
		}
		breakIt := broken[number]
		if breakIt == nil {
			t.Errorf("rule %s has no broken runtime", r.name)
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			v := &violations{}
			check := r.check
			r.check = func(w *world) {
				check(w)
				if number == "34" {
					time.Sleep(6 * time.Minute) // the goroutines of the broken runtime end
				}
			}
			r.report(t, v, nil, breakIt())
			if len(v.all) == 0 {
				t.Fatal("the suite does not detect the broken runtime")
			}
			t.Log(v.all[0])
		})
	}
}
