package tablestest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
	"github.com/ashlar-dev/storage/typed/tables"
)

type object = typed.Object[*wrapperspb.Int64Value]

// The suite's table: numbers, indexed by value and by their divisors up to 4.
var (
	byValue   = tables.Index[*wrapperspb.Int64Value, int64]{Name: "value", Values: func(o *object) []int64 { return []int64{o.Data.GetValue()} }}
	byDivisor = tables.Index[*wrapperspb.Int64Value, int]{Name: "divisor", Values: divisors}
	numbers   = tables.NewTable[*wrapperspb.Int64Value](&resourcepb.Type{Group: "storetest", GroupVersion: "v1", Kind: "Number"}, byValue, byDivisor)
)

func divisors(o *object) (some []int) {
	for d := 1; d <= 4; d++ {
		if o.Data.GetValue()%int64(d) == 0 {
			some = append(some, d)
		}
	}
	return some
}

func id(name string) *resourcepb.ID {
	return numbers.ID(&resourcepb.Tenancy{Partition: "default", Namespace: "default"}, name)
}

// world is one database and the stores on it.
type world struct {
	ctx     context.Context
	h       Harness
	url     string
	remote  bool // each call is a round trip to another process
	handle  func(context.Context) (storage.Backend, error)
	stores  []Store
	handles []storage.Backend
}

// rounds returns the number of repetitions in a rule.
func (w *world) rounds() int {
	n := rounds
	if w.h.Slow {
		n /= 3
	}
	if w.remote {
		n /= 3
	}
	return n
}

// histories returns the number of histories of rule S4.
func (w *world) histories() int {
	if w.h.Slow {
		return historyCount / 3
	}
	return historyCount
}

// open opens a store on its own handle, wrapped by wrap unless it is nil.
func (w *world) open(wrap func(storage.Backend) storage.Backend) (Store, error) {
	b, err := w.handle(w.ctx)
	if err != nil {
		return nil, err
	}
	w.handles = append(w.handles, b)
	if w.h.Layer != nil {
		b = w.h.Layer(b)
	}
	if wrap != nil {
		b = wrap(b)
	}
	s, err := w.h.OpenStore(w.ctx, b, numbers)
	if err != nil {
		return nil, err
	}
	w.stores = append(w.stores, s)
	return s, nil
}

func (w *world) close() (err error) {
	for _, s := range w.stores {
		err = errors.Join(err, s.Close())
	}
	for _, b := range w.handles {
		err = errors.Join(err, b.Close())
	}
	return err
}

// at returns one of the stores.
func (w *world) at(i int) Store { return w.stores[i%len(w.stores)] }

// set creates or changes objects in one transaction.
func set(ctx context.Context, s Store, value func(old int64) int64, names ...string) error {
	return s.Update(ctx, func(tx *tables.Tx) error {
		for _, name := range names {
			if err := change(tx, name, value); err != nil {
				return err
			}
		}
		return nil
	})
}

// change sets the value of an object, computed from its current value, 0 if it does not exist.
func change(tx *tables.Tx, name string, value func(old int64) int64) error {
	o, err := numbers.Edit(tx, id(name))
	if errors.Is(err, storage.ErrNotFound) {
		return numbers.Put(tx, &object{ID: id(name), Data: wrapperspb.Int64(value(0))})
	}
	if err != nil {
		return err
	}
	o.Data.Value = value(o.Data.Value)
	return numbers.Put(tx, o)
}

func plus(n int64) func(int64) int64 { return func(old int64) int64 { return old + n } }

func to(n int64) func(int64) int64 { return func(int64) int64 { return n } }

// value returns the value of an object, 0 if it does not exist.
func value(r tables.Reader, name string) (int64, error) {
	o, err := numbers.Get(r, id(name))
	if errors.Is(err, storage.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return o.Data.GetValue(), nil
}

func names(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("n-%02d", i)
	}
	return all
}

// runAll runs functions concurrently until all have returned. Their context ends with the first error, which runAll returns.
func runAll(ctx context.Context, fns ...func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(fns))
	var first sync.Once
	var cause error
	var wg sync.WaitGroup
	for i, fn := range fns {
		wg.Go(func() {
			if errs[i] = recoverPanic(ctx, fn); errs[i] != nil {
				first.Do(func() {
					cause = errs[i]
					cancel()
				})
			}
		})
	}
	wg.Wait()
	return cause
}

// recoverPanic returns a panic as an error. In builds with the race detector, the store panics if shared objects were changed.
func recoverPanic(ctx context.Context, fn func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return fn(ctx)
}

// whileRunning runs functions repeatedly until work returns.
func whileRunning(ctx context.Context, work func(ctx context.Context) error, meanwhile ...func(ctx context.Context) error) error {
	done := make(chan struct{})
	fns := []func(ctx context.Context) error{func(ctx context.Context) error {
		defer close(done)
		return work(ctx)
	}}
	for _, fn := range meanwhile {
		fns = append(fns, func(ctx context.Context) error {
			for {
				select {
				case <-done:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				default:
				}
				if err := fn(ctx); err != nil {
					return err
				}
			}
		})
	}
	return runAll(ctx, fns...)
}

func pick[T any](from []T) T { return from[rand.IntN(len(from))] }
