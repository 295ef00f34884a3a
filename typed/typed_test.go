package typed_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	_ "github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	_ "github.com/ashlar-dev/storage/sqlite"
	"github.com/ashlar-dev/storage/typed"
)

var (
	counterType = &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Counter"}
	shop        = &resourcepb.Tenancy{Partition: "default", Namespace: "shop"}
)

// onEach runs a test on each embedded backend.
func onEach(t *testing.T, test func(ctx context.Context, t *testing.T, b storage.Backend)) {
	t.Parallel()
	for _, url := range []string{"mem://", "sqlite:" + filepath.Join(t.TempDir(), "store.db")} {
		t.Run(strings.SplitN(url, ":", 2)[0], func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			t.Cleanup(cancel)
			b, err := storage.Open(ctx, url)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { b.Close() })
			test(ctx, t, b)
		})
	}
}

type counter = typed.Object[*wrapperspb.Int64Value]

func TestLifecycle(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, b storage.Backend) {
		c := typed.New[*wrapperspb.Int64Value](b, counterType)
		w, err := c.Watch(ctx, shop, "", typed.WithOld)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		made, err := c.Create(ctx, counter{ID: c.ID(shop, "a"), Data: wrapperspb.Int64(1), Metadata: map[string]string{"k": "v"}})
		if err != nil || made.ID.GetUid() == "" || made.Generation == "" || made.Data.GetValue() != 1 {
			t.Fatal(made, err)
		}
		if _, err := c.Create(ctx, counter{ID: made.ID, Data: wrapperspb.Int64(2)}); !errors.Is(err, typed.ErrExists) || !errors.Is(err, storage.ErrCASFailure) {
			t.Errorf("create of an existing resource: %v, expected ErrExists", err)
		}
		if _, err := c.Create(ctx, counter{ID: c.ID(shop, "a"), Data: wrapperspb.Int64(2)}); !errors.Is(err, typed.ErrExists) || !errors.Is(err, storage.ErrWrongUid) {
			t.Errorf("create of an existing resource with a new uid: %v, expected ErrExists", err)
		}
		same, err := c.Update(ctx, made.ID, func(o *counter) error { return nil })
		if err != nil || same.Version != made.Version {
			t.Errorf("an update without a change wrote: %v, %v", same, err)
		}
		two, err := c.Update(ctx, made.ID, func(o *counter) error {
			o.Data.Value, o.ID.Name, o.ID.Uid, o.Version, o.Generation, o.Status = 2, "b", "x", "y", "z", nil
			return nil
		})
		if err != nil || two.Data.GetValue() != 2 || two.Generation == made.Generation || two.ID.GetName() != "a" || two.ID.GetUid() != made.ID.GetUid() {
			t.Fatal(two, err)
		}
		stop := errors.New("stop")
		if _, err := c.Update(ctx, made.ID, func(*counter) error { return stop }); err != stop {
			t.Errorf("Update returned %v, expected the function's error", err)
		}
		st, err := c.UpdateStatus(ctx, made.ID, "me", func(o *counter, s *resourcepb.Status) error {
			s.ObservedGeneration = o.Generation
			o.Data.Value = 17 // a copy
			return nil
		})
		if err != nil || st.Generation != two.Generation || st.Status["me"].GetUpdatedAt() == nil || st.Data.GetValue() != 2 {
			t.Fatal(st, err)
		}
		if again, err := c.UpdateStatus(ctx, made.ID, "me", func(*counter, *resourcepb.Status) error { return nil }); err != nil || again.Version != st.Version {
			t.Errorf("an unchanged status was written: %v, %v", again, err)
		}
		if err := c.Delete(ctx, made.ID, typed.Preconditions{Version: two.Version}); !errors.Is(err, storage.ErrCASFailure) {
			t.Errorf("delete of an outdated version: %v, expected ErrCASFailure", err)
		}
		if err := c.Delete(ctx, c.ID(shop, "a"), typed.Preconditions{Uid: "another"}); err != nil {
			t.Error(err)
		}
		if _, err := c.Get(ctx, storage.StrongConsistency, made.ID); err != nil {
			t.Fatalf("another incarnation was deleted: %v", err)
		}
		for range 2 {
			if err := c.Delete(ctx, c.ID(shop, "a"), typed.Preconditions{}); err != nil {
				t.Fatal(err)
			}
		}
		var seen []string
		for len(seen) < 5 {
			ev, err := w.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			text := fmt.Sprint(ev.Kind)
			if ev.New != nil {
				text += fmt.Sprint(" ", ev.New.Data.GetValue())
			}
			if ev.Old != nil {
				text += fmt.Sprint(" was ", ev.Old.Data.GetValue())
			}
			seen = append(seen, text)
		}
		if got, want := strings.Join(seen, ", "), "3, 1 1, 1 2 was 1, 1 2 was 2, 2 was 2"; got != want {
			t.Errorf("the watch returned %q, expected %q", got, want)
		}
	})
}

// Concurrent updates are neither lost nor abandoned.
func TestConcurrentUpdates(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, b storage.Backend) {
		c := typed.New[*wrapperspb.Int64Value](b, counterType)
		if _, err := c.Create(ctx, counter{ID: c.ID(shop, "a"), Data: wrapperspb.Int64(0)}); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 25 {
					if _, err := c.Update(ctx, c.ID(shop, "a"), func(o *counter) error { o.Data.Value++; return nil }); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if o, err := c.Get(ctx, storage.StrongConsistency, c.ID(shop, "a")); err != nil || o.Data.GetValue() != 200 {
			t.Errorf("after 200 updates the value is %v (%v)", o, err)
		}
	})
}

// A payload of another message type is an error that names it, in every call, and changes nothing.
func TestWrongPayload(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, b storage.Backend) {
		c := typed.New[*wrapperspb.Int64Value](b, counterType)
		write := func(name string, data *anypb.Any) {
			t.Helper()
			id := c.ID(shop, name)
			id.Uid = "uid"
			if _, err := b.WriteCAS(ctx, &resourcepb.Resource{Id: id, Data: data}); err != nil {
				t.Fatal(err)
			}
		}
		other, _ := anypb.New(durationpb.New(time.Second))
		write("a-other", other)
		write("b-broken", &anypb.Any{TypeUrl: "x/google.protobuf.Int64Value", Value: []byte{0xff}})
		write("c-none", nil)
		if _, err := c.Create(ctx, counter{ID: c.ID(shop, "d-good"), Data: wrapperspb.Int64(4)}); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{
			"a-other":  `the payload of demo/Counter "a-other" in "default"/"shop" is google.protobuf.Duration, expected google.protobuf.Int64Value`,
			"b-broken": `the payload of demo/Counter "b-broken" in "default"/"shop" cannot be decoded as google.protobuf.Int64Value`,
			"c-none":   `demo/Counter "c-none" in "default"/"shop" has no payload, expected google.protobuf.Int64Value`,
		} {
			_, err := c.Update(ctx, c.ID(shop, name), func(*counter) error { t.Error("the function was called"); return nil })
			if wrong := (*typed.PayloadError)(nil); !errors.As(err, &wrong) || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		var objects, faults int
		for o, err := range c.List(ctx, storage.StrongConsistency, shop, "") {
			if wrong := (*typed.PayloadError)(nil); errors.As(err, &wrong) {
				faults++
			} else if err != nil || o.Data.GetValue() != 4 {
				t.Error(o, err)
			} else {
				objects++
			}
		}
		if objects != 1 || faults != 3 {
			t.Errorf("the list has %d objects and %d errors, expected 1 and 3", objects, faults)
		}
		if _, err := c.Create(ctx, counter{ID: c.ID(shop, "nil")}); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("create without a payload: %v, expected ErrInvalid", err)
		}
		if _, err := c.Get(ctx, storage.StrongConsistency, &resourcepb.ID{Type: &resourcepb.Type{Group: "x", Kind: "Y"}, Tenancy: shop, Name: "z"}); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("get with an id of another type: %v, expected ErrInvalid", err)
		}
	})
}

// city is a payload that is not a protobuf message.
type city struct {
	City   string   `json:"city"`
	People int64    `json:"people"`
	Exact  uint64   `json:"exact,string"`
	Names  []string `json:"names,omitempty"`
}

func TestJSON(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, b storage.Backend) {
		c := typed.NewJSON[city](b, &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Place"})
		in := city{City: "Ulm", People: 1 << 53, Exact: math.MaxUint64, Names: []string{"a"}}
		made, err := c.Create(ctx, typed.Object[city]{ID: c.ID(shop, "ulm"), Data: in})
		if err != nil || fmt.Sprint(made.Data) != fmt.Sprint(in) {
			t.Fatal(made, err)
		}
		changed, err := c.Update(ctx, made.ID, func(o *typed.Object[city]) error { o.Data.Names[0] = "b"; return nil })
		if err != nil || changed.Data.Names[0] != "b" || made.Data.Names[0] != "a" {
			t.Error(changed, made, err)
		}
		_, err = c.Update(ctx, made.ID, func(o *typed.Object[city]) error { o.Data.People = 1<<53 + 1; return nil })
		if !errors.Is(err, storage.ErrInvalid) || !strings.Contains(err.Error(), "9007199254740993 cannot be stored exactly") {
			t.Errorf("an integer that a Struct cannot represent: %v", err)
		}
		list := typed.NewJSON[[]string](b, &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "List"})
		if _, err := list.Create(ctx, typed.Object[[]string]{ID: list.ID(shop, "x"), Data: []string{"a"}}); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("a value that is not a JSON object: %v, expected ErrInvalid", err)
		}
	})
}
