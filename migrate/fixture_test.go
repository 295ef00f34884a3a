package migrate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// limited returns the context of a whole test.
func limited(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// odd contains parts of keys that a database or a copy without exact comparison would confuse, reorder or lose.
var odd = []string{
	"a", "A", "b", "a/b", "a b", "a%b", "a_b", "a\\b", "a\x01", "a\x7f", "#", "?", "ä", "\u00e9", "e\u0301", "\U0010ffff", "..",
	"a*", "**", strings.Repeat("x", 255), "zzz", "~", "'\"", "\n", "%00", "null",
}

// zoo returns n different resources: of several types and tenancies, with odd names, mixed sizes, many with an owner.
func zoo(n int) []*resourcepb.Resource {
	r := rand.New(rand.NewPCG(1, uint64(n))) //nolint:gosec // reproducible
	all := make([]*resourcepb.Resource, n)
	for i := range all {
		part := odd[i%len(odd)]
		res := &resourcepb.Resource{
			Id: &resourcepb.ID{
				Uid: fmt.Sprintf("uid-%d", i), Name: fmt.Sprintf("%.240s%d", part, i/7),
				Type:    &resourcepb.Type{Group: []string{"demo", "Demo", "a/b"}[i%3], GroupVersion: []string{"v1", "v2beta1", ""}[i%3], Kind: []string{"Thing", "thing", "T g"}[i/3%3]},
				Tenancy: &resourcepb.Tenancy{Partition: []string{"", "default", "a/b"}[i/9%3], Namespace: []string{"", part}[i/27%2]},
			},
			Generation: fmt.Sprintf("gen-%d", i),
		}
		if res.Id.Tenancy.Namespace == "*" || len(res.Id.Tenancy.Namespace) > 200 {
			res.Id.Tenancy.Namespace = "n"
		}
		if i%4 == 0 && i > 0 {
			res.Owner = proto.CloneOf(all[i/2].Id)
		}
		if i%5 == 0 {
			res.Metadata = map[string]string{"a": part, "": "empty", "z\x00": "nul"}
		}
		if i%6 == 0 {
			res.Status = map[string]*resourcepb.Status{"s": {ObservedGeneration: "g", UpdatedAt: timestamppb.New(time.Unix(int64(i), 1)),
				Conditions: []*resourcepb.Condition{{Type: "Ready", State: resourcepb.Condition_STATE_TRUE, Message: part}}}}
		}
		if i%8 == 0 {
			res.Ttl = durationpb.New(time.Duration(i+1) * time.Millisecond)
		}
		if i%7 != 0 {
			size := []int{0, 1, 100, 1000, 5000}[i%5]
			if i%500 == 1 {
				size = 900 << 10
			}
			value := make([]byte, size)
			for j := range value {
				value[j] = byte(r.Uint32())
			}
			res.Data = &anypb.Any{TypeUrl: "type.example/Unknown", Value: value}
		}
		all[i] = res
	}
	return all
}

// fill writes resources, several concurrently.
func fill(t testing.TB, b storage.Backend, all []*resourcepb.Resource) {
	t.Helper()
	ctx := limited(t)
	var group sync.WaitGroup
	work := make(chan *resourcepb.Resource)
	for range 16 {
		group.Go(func() {
			for res := range work {
				if _, err := b.WriteCAS(ctx, res); err != nil {
					t.Errorf("writing %v: %v", key.Of(res.Id), err)
				}
			}
		})
	}
	for _, res := range all {
		work <- res
	}
	close(work)
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// wantEqual compares two stores, including their owner references.
func wantEqual(t testing.TB, a, b storage.Backend) *Report {
	t.Helper()
	found := 0
	report, err := Verify(limited(t), a, b, &VerifyOptions{OnDifference: func(d Difference) error {
		if found++; found < 10 {
			t.Error(d)
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if !report.Equal() || report.SourceDigest != report.TargetDigest {
		t.Fatal(report)
	}
	return report
}

func small(name, value string) *resourcepb.Resource {
	return &resourcepb.Resource{
		Id: &resourcepb.ID{
			Uid: "uid-" + name, Name: name,
			Type:    &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Thing"},
			Tenancy: &resourcepb.Tenancy{Partition: "default", Namespace: "default"},
		},
		Data: &anypb.Any{TypeUrl: "type.example/Value", Value: []byte(value)},
	}
}

// write creates or replaces a resource unconditionally.
func write(t testing.TB, b storage.Backend, res *resourcepb.Resource) *resourcepb.Resource {
	t.Helper()
	res = proto.CloneOf(res)
	if old, err := readAny(limited(t), b, res.Id); err != nil {
		t.Fatal(err)
	} else {
		res.Version = old.GetVersion()
	}
	out, err := b.WriteCAS(limited(t), res)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// contents returns the values of resources by name.
func contents(t testing.TB, b storage.Backend) map[string]string {
	t.Helper()
	all, err := b.List(driver.WithMovedReads(limited(t)), storage.StrongConsistency, everything, anyTenancy(), "")
	if err != nil {
		t.Fatal(err)
	}
	values := make(map[string]string)
	for _, res := range all {
		values[res.Id.Name] = string(res.GetData().GetValue())
	}
	return values
}

// writerGroup is a group of programs that write to a store until it is closed for writing, and record the acknowledged writes.
type writerGroup struct {
	group sync.WaitGroup
	mu    sync.Mutex
	last  map[string]string // the value acknowledged last; "" for a deletion
	all   trail             // all acknowledged writes
	after int               // acknowledged after stop was called
	ended bool
	wrote chan struct{} // a value for each write, unless the receiver is slow
	pace  *rate.Limiter
}

// slowDown makes the programs write rarely, so that a tool catches up on a busy machine.
func (h *writerGroup) slowDown() { h.pace.SetLimit(8) }

// startWriters starts n programs. Each creates, changes, deletes and re-creates resources of its own.
func startWriters(t testing.TB, n int, open func() storage.Backend) *writerGroup {
	t.Helper()
	ctx, stop := context.WithCancel(limited(t))
	h := &writerGroup{last: make(map[string]string), all: make(trail), wrote: make(chan struct{})}
	t.Cleanup(func() {
		stop()
		h.group.Wait()
	})
	// The tool ends only after it has proven that it has caught up. On a busy machine, or if it is killed repeatedly, it would never
	// catch up with writers at full speed.
	h.pace = rate.NewLimiter(40, 10)
	for i := range n {
		b := open()
		r := rand.New(rand.NewPCG(7, uint64(i))) //nolint:gosec // reproducible
		h.group.Go(func() {
			mine := make(map[string]*resourcepb.Resource)
			for step := 0; ; step++ {
				if h.pace.Wait(ctx) != nil {
					return
				}
				name := fmt.Sprintf("w%d-%d", i, r.IntN(30))
				have := mine[name]
				var err error
				value, version := "", ""
				if have != nil && r.IntN(4) == 0 {
					if err = b.DeleteCAS(ctx, have.Id, have.Version); err == nil {
						delete(mine, name)
					}
				} else {
					value = fmt.Sprintf("%d", step)
					res := small(name, value)
					res.Id.Uid = fmt.Sprintf("uid-%d-%d", i, step)
					if have != nil {
						res.Id.Uid, res.Version = have.Id.Uid, have.Version
					}
					if res, err = b.WriteCAS(ctx, res); err == nil {
						mine[name], version = res, res.Version
					}
				}
				if errors.Is(err, storage.ErrFenced) || ctx.Err() != nil {
					return
				}
				if err != nil {
					t.Errorf("writer %d: %v", i, err)
					return
				}
				h.mu.Lock()
				h.last[name] = value
				k := key.Of(small(name, "").Id)
				h.all[k] = append(h.all[k], version)
				if h.ended {
					h.after++
				}
				h.mu.Unlock()
				select {
				case h.wrote <- struct{}{}:
				default:
				}
			}
		})
	}
	go func() {
		h.group.Wait()
		close(h.wrote)
	}()
	return h
}

// awaitWrites waits for n more writes, or at least for their notifications.
func (h *writerGroup) awaitWrites(t testing.TB, n int) {
	t.Helper()
	ctx := limited(t)
	for range n {
		select {
		case _, more := <-h.wrote:
			if !more {
				t.Fatal("the writers have stopped")
			}
		case <-ctx.Done():
			t.Fatal("the writers are stuck")
		}
	}
}

// awaitWritesOrEnd waits for n writes, or until the writers have stopped.
func (h *writerGroup) awaitWritesOrEnd(n int) {
	for range n {
		if _, more := <-h.wrote; !more {
			return
		}
	}
}

// check waits for the writers, which the fence must have stopped, and compares their acknowledged writes with a store.
func (h *writerGroup) check(t testing.TB, b storage.Backend) {
	t.Helper()
	h.mu.Lock()
	h.ended = true
	h.mu.Unlock()
	h.group.Wait()
	if h.after != 0 {
		t.Errorf("%d writes were acknowledged after the migration was complete", h.after)
	}
	have := contents(t, b)
	want := 0
	for name, value := range h.last {
		if value != "" {
			want++
		}
		if have[name] != value {
			t.Errorf("%s: the store has %q, expected the last acknowledged value %q", name, have[name], value)
		}
	}
	got := 0
	for name := range have {
		if strings.HasPrefix(name, "w") {
			got++
		}
	}
	if got != want {
		t.Errorf("the store has %d resources of the writers, expected %d", got, want)
	}
}

// versions returns the versions of resources by name.
func versions(t testing.TB, b storage.Backend) map[string]string {
	t.Helper()
	all, err := b.List(driver.WithMovedReads(limited(t)), storage.StrongConsistency, everything, anyTenancy(), "")
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]string)
	for _, res := range all {
		found[res.Id.Name] = res.Version
	}
	return found
}

func moverOf(t testing.TB, b storage.Backend) driver.Mover {
	t.Helper()
	m, ok := storage.As[driver.Mover](b)
	if !ok {
		t.Fatalf("%T has no driver.Mover", b)
	}
	return m
}

// fenceOf returns the target that a store is fenced for, or "" if it is open.
func fenceOf(t testing.TB, b storage.Backend) string {
	t.Helper()
	fence, err := ReadFence(limited(t), b)
	switch {
	case err != nil:
		t.Fatal(err)
	case !fence.Closed:
		return ""
	case fence.Target == "":
		t.Error("the store is closed without a target")
	}
	return fence.Target
}
