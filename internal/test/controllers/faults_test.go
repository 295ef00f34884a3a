package controllers

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/conformance/faults"
	"github.com/ashlar-dev/storage/controller"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/freeze"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/reaper"
	"github.com/ashlar-dev/storage/service/registry"
	"github.com/ashlar-dev/storage/typed"
)

// trial describes a store, and the faults of its database.
type trial struct {
	url         string // of an undisturbed handle
	processURL  string // of the processes; url if it is empty
	faults      []faults.Fault
	isUnordered bool // events of different keys have no order
}

const (
	processCount = 3
	maxWait      = 3 * time.Minute // for anything that must happen
)

// duration returns how long faults are injected: a few seconds, or ASHLAR_CONTROLLERS_FOR.
func duration(t testing.TB) time.Duration {
	text := os.Getenv("ASHLAR_CONTROLLERS_FOR")
	if text == "" {
		return 3 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("ASHLAR_CONTROLLERS_FOR: %v", err)
	}
	return d
}

// run runs controllers in several processes under faults, and checks the result.
func (tr trial) run(t *testing.T) {
	backend, err := storage.Open(t.Context(), tr.url)
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Close()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	server := service.New(backend, registry.NewOpen(registry.Type{}), nil)
	// The reaper keeps tombstones for longer than a write may take in a frozen database; otherwise the write would leave an orphan.
	running.Go(func() { _ = reaper.New(server, &reaper.Options{Logger: slog.New(slog.DiscardHandler)}).Run(ctx) })
	observers := []*observer{{kind: reports, isOrdered: !tr.isUnordered}, {kind: marks}}
	for _, o := range observers {
		running.Go(func() { o.observe(ctx, t, backend) })
	}
	var processes []*process
	for range processCount {
		p := &process{url: tr.processURL}
		if p.url == "" {
			p.url = tr.url
		}
		if err := p.start(t); err != nil {
			t.Fatal(err)
		}
		defer p.kill()
		processes = append(processes, p)
	}

	fill(t, server.Client())
	awaitResult(t, backend, "the start")
	work, endWork := context.WithTimeout(ctx, duration(t))
	defer endWork()
	var working sync.WaitGroup
	working.Go(func() { write(work, server.Client()) })
	working.Go(func() { tr.disturb(work, t, backend) })
	working.Go(func() { disturbProcesses(work, t, processes) })
	working.Wait()

	awaitResult(t, backend, "the last fault")
	for _, p := range processes {
		if err := p.stop(); err != nil {
			t.Errorf("a process that was stopped in order: %v", err)
		}
	}
	stop()
	running.Wait()
	for _, o := range observers {
		t.Logf("%s: %d writes in %d epochs", o.kind.Type.GetKind(), o.writes, len(o.epochs))
		if o.writes == 0 {
			t.Errorf("no %s was observed", o.kind.Type.GetKind())
		}
	}
}

const listCount, itemCount = 5, 20

func listName(n int) string { return "list-" + strconv.Itoa(n) }

// put stores a list or an item.
func put(ctx context.Context, client resourcegrpc.ResourceServiceClient, id *resourcepb.ID, text string) error {
	data, err := anypb.New(wrapperspb.String(text))
	if err == nil {
		_, err = client.Write(ctx, &resourcepb.WriteRequest{Resource: &resourcepb.Resource{Id: id, Data: data}})
	}
	return err
}

// fill creates all lists and items.
func fill(t *testing.T, client resourcegrpc.ResourceServiceClient) {
	t.Helper()
	for i := range listCount {
		if err := put(t.Context(), client, lists.ID(tenancy, listName(i)), ""); err != nil {
			t.Fatal(err)
		}
	}
	for i := range itemCount {
		if err := put(t.Context(), client, items.ID(tenancy, "item-"+strconv.Itoa(i)), listName(i%listCount)); err != nil {
			t.Fatal(err)
		}
	}
}

// write changes lists and items at random until ctx ends. Failed writes may have an effect.
func write(ctx context.Context, client resourcegrpc.ResourceServiceClient) {
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, 5*time.Second)
		id, text := items.ID(tenancy, "item-"+strconv.Itoa(rand.IntN(itemCount))), listName(rand.IntN(listCount))
		if rand.IntN(4) == 0 {
			id, text = lists.ID(tenancy, text), ""
		}
		if rand.IntN(6) == 0 {
			_, _ = client.Delete(call, &resourcepb.DeleteRequest{Id: id})
		} else {
			_ = put(call, client, id, text)
		}
		cancel()
		pause(ctx, time.Duration(rand.Int64N(int64(20*time.Millisecond))))
	}
}

// disturb injects the faults of the database, and compactions, until ctx ends. At the end no fault is left.
func (tr trial) disturb(ctx context.Context, t *testing.T, backend storage.Backend) {
	all := tr.faults
	if past, ok := storage.As[history.Historian](backend); ok {
		all = append(all, faults.Fault{Kind: faults.Compact, Weight: 4, Inject: func(ctx context.Context, _ *rand.Rand) (func(context.Context) error, error) {
			scan, err := past.Scan(ctx, history.Range{}, history.ScanOptions{})
			if err == nil {
				_ = past.Compact(ctx, scan.Revision) // the database may be about to fail
			}
			return nil, nil
		}})
	}
	var weighted []faults.Fault
	for _, f := range all {
		for range max(1, f.Weight) {
			weighted = append(weighted, f)
		}
	}
	source := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	for len(weighted) > 0 && ctx.Err() == nil {
		f := weighted[rand.IntN(len(weighted))]
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxWait)
		heal, err := f.Inject(limited, source)
		if err != nil {
			t.Errorf("inject %s: %v", f.Kind, err)
		}
		if heal != nil {
			pause(ctx, time.Duration(rand.Int64N(int64(max(f.Hold, time.Second)))))
			if err := heal(limited); err != nil {
				t.Errorf("end %s: %v", f.Kind, err)
			}
		}
		cancel()
		pause(ctx, time.Duration(rand.Int64N(int64(time.Second))))
	}
}

// disturbProcesses kills and pauses processes until ctx ends. At the end all of them run.
func disturbProcesses(ctx context.Context, t *testing.T, processes []*process) {
	for ctx.Err() == nil {
		pause(ctx, time.Duration(rand.Int64N(int64(time.Second))))
		p := processes[rand.IntN(len(processes))]
		var err error
		if rand.IntN(2) == 0 || !freeze.Possible {
			p.kill()
			err = p.start(t)
		} else if err = p.freeze(); err == nil {
			pause(ctx, time.Duration(rand.Int64N(int64(3*leaseTTL))))
			err = p.wake()
		}
		if err != nil {
			t.Errorf("disturb a process: %v", err)
		}
	}
}

// awaitResult waits until each resource was reconciled at its last version, after an event that it names in its failure.
func awaitResult(t *testing.T, backend storage.Backend, event string) {
	var found []string
	ctx, cancel := context.WithTimeout(t.Context(), maxWait)
	defer cancel()
	for ; ctx.Err() == nil; pause(ctx, 50*time.Millisecond) {
		stored := map[string][]object{}
		var err error
		for _, k := range []controller.Kind[*wrapperspb.StringValue]{lists, items, reports, marks} {
			var all []*resourcepb.Resource
			if all, err = backend.List(t.Context(), storage.StrongConsistency, storage.UnversionedTypeFrom(k.Type), tenancy, ""); err != nil {
				break
			}
			for _, res := range all {
				var o object
				if o, err = typed.Messages[*wrapperspb.StringValue]().Object(res); err != nil {
					t.Fatal(err)
				}
				stored[k.Type.GetKind()] = append(stored[k.Type.GetKind()], o)
			}
		}
		switch {
		case err != nil:
			found = []string{err.Error()}
		default:
			if found = differences(stored); len(found) == 0 {
				return
			}
		}
	}
	t.Errorf("not within %v after %s:\n%s", maxWait, event, strings.Join(found, "\n"))
}

// observer watches the writes of a controller and checks their epochs.
type observer struct {
	kind      controller.Kind[*wrapperspb.StringValue]
	isOrdered bool // one lease, and events in commit order: compare across keys

	writes int
	latest map[string]int64 // epoch by key, "" for all keys
	epochs map[int64]bool
}

// observe watches until ctx ends.
func (o *observer) observe(ctx context.Context, t *testing.T, backend storage.Backend) {
	o.latest, o.epochs = map[string]int64{}, map[int64]bool{}
	for ctx.Err() == nil {
		w, err := backend.WatchList(ctx, storage.UnversionedTypeFrom(o.kind.Type), tenancy, "")
		isSnapshot := true // in no particular order
		for err == nil {
			var ev *resourcepb.WatchEvent
			if ev, err = w.Next(ctx); err != nil {
				w.Close()
				break
			}
			if ev.GetEndOfSnapshot() != nil {
				isSnapshot = false
			}
			if res := ev.GetUpsert().GetResource(); res != nil {
				if problem := o.note(res, isSnapshot); problem != "" {
					t.Error(problem)
				}
			}
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// note checks a write: no earlier tenure may write after a later one.
func (o *observer) note(res *resourcepb.Resource, isSnapshot bool) (problem string) {
	epoch, err := strconv.ParseInt(res.GetMetadata()[epochKey], 10, 64)
	if err != nil {
		return fmt.Sprintf("%v: %v", res.GetId(), err)
	}
	o.writes++
	o.epochs[epoch] = true
	keys := []string{res.GetId().GetName()}
	if o.isOrdered {
		keys = append(keys, "")
	}
	for _, k := range keys {
		if epoch < o.latest[k] && !(isSnapshot && k == "") {
			problem = fmt.Sprintf("%s %s: a write of epoch %d was committed after one of epoch %d", res.GetId().GetType().GetKind(), res.GetId().GetName(), epoch, o.latest[k])
		}
		o.latest[k] = max(o.latest[k], epoch)
	}
	return problem
}

// pause waits for a duration or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
