package tablestest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/typed/tables"
)

// transaction is the values that an Update has read and written; 0 is an absent object.
type transaction struct {
	reads, writes map[string]int64
}

// The size of a history: clients, transactions of each client, and objects.
const (
	historyClients = 4
	historyLength  = 8
	historyKeys    = 3
	historyCount   = 12
)

// histories runs short concurrent histories of transactions that read some objects, also absent ones, and write others or none. A
// checker searches for a serial order. It starts with two cases: one fails if a commit does not compare objects that were only read,
// the other if a deletion does not require the object.
func histories(w *world) error {
	if err := errors.Join(writeSkew(w), exclusiveTakes(w)); err != nil {
		return err
	}
	for h := range w.histories() {
		if err := history(w, fmt.Sprintf("h%d-", h), nil); err != nil {
			return err
		}
	}
	return nil
}

// conflict creates objects of value 1 and runs two transactions of two stores, which have both read the objects before either writes: read waits for the
// other's call.
func conflict(w *world, objects []string, transact func(i int, tx *tables.Tx, read func()) error) error {
	if err := set(w.ctx, w.at(0), to(1), objects...); err != nil {
		return err
	}
	if err := set(w.ctx, w.at(1), func(old int64) int64 { return max(old, 1) }, objects...); err != nil {
		return err // afterwards the other store has them
	}
	var met sync.WaitGroup
	met.Add(2)
	var both []func(context.Context) error
	for i := range 2 {
		read := sync.OnceFunc(func() {
			met.Done()
			met.Wait()
		})
		both = append(both, func(ctx context.Context) error {
			return w.at(i).Update(ctx, func(tx *tables.Tx) error { return transact(i, tx, read) })
		})
	}
	return runAll(w.ctx, both...)
}

// writeSkew lets two transactions delete one of two objects each, concurrently, on the condition that the other object stays.
func writeSkew(w *world) error {
	for round := range w.rounds() {
		doctors := []string{fmt.Sprint("a", round), fmt.Sprint("b", round)}
		if err := conflict(w, doctors, func(i int, tx *tables.Tx, read func()) error {
			staying, err := value(tx, doctors[1-i])
			read()
			if err != nil || staying == 0 {
				return err
			}
			return numbers.Delete(tx, id(doctors[i]))
		}); err != nil {
			return err
		}
		var remaining int64
		if err := w.at(0).Update(w.ctx, func(tx *tables.Tx) error {
			a, errA := value(tx, doctors[0])
			b, errB := value(tx, doctors[1])
			remaining = a + b
			return errors.Join(errA, errB)
		}); err != nil {
			return err
		}
		if remaining != 1 {
			return fmt.Errorf("write skew: %d of two objects remain, expected 1", remaining)
		}
	}
	return nil
}

// exclusiveTakes lets two transactions concurrently replace the same object by another.
func exclusiveTakes(w *world) error {
	for round := range w.rounds() {
		token := fmt.Sprint("token", round)
		var taken [2]bool
		if err := conflict(w, []string{token}, func(i int, tx *tables.Tx, read func()) error {
			tokenValue, err := value(tx, token)
			read()
			if taken[i] = tokenValue == 1; err != nil || !taken[i] {
				return err
			}
			return errors.Join(numbers.Delete(tx, id(token)), change(tx, fmt.Sprint(token, "-", i), to(1)))
		}); err != nil {
			return err
		}
		if taken[0] == taken[1] {
			return fmt.Errorf("not serializable: two transactions replaced one object, both succeeded: %v", taken[0])
		}
	}
	return nil
}

// history runs one history and checks it. When a client is halfway, it calls halfway unless it is nil.
func history(w *world, prefix string, halfway func(context.Context) error) error {
	var mu sync.Mutex
	begun := make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	var ops []porcupine.Operation
	began := time.Now()
	client := func(c int) func(context.Context) error {
		return repeat(historyLength, func(ctx context.Context, i int) error {
			if i == historyLength/2 {
				begin()
			}
			plan := randomPlan(prefix, int64(1+c*historyLength+i))
			op := porcupine.Operation{ClientId: c, Call: int64(time.Since(began))}
			var done transaction
			err := w.at(c).Update(ctx, func(tx *tables.Tx) error { return plan.execute(tx, &done) })
			op.Return = int64(time.Since(began))
			switch {
			case halfway != nil && errors.Is(err, storage.ErrInconsistent): // it may take effect after all others, and what it has read is unknown
				op.Return, done.reads = math.MaxInt64, nil
			case err != nil:
				return err
			}
			op.Input = done
			mu.Lock()
			defer mu.Unlock()
			ops = append(ops, op)
			return nil
		})
	}
	clients := make([]func(context.Context) error, historyClients)
	for c := range clients {
		clients[c] = client(c)
	}
	if halfway != nil {
		clients = append(clients, func(ctx context.Context) error {
			select {
			case <-begun:
				return halfway(ctx)
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}
	if err := runAll(w.ctx, clients...); err != nil {
		return err
	}
	switch porcupine.CheckOperationsTimeout(model, ops, 2*time.Minute) {
	case porcupine.Illegal:
		return fmt.Errorf("a history is not serializable: %v", ops)
	case porcupine.Unknown:
		return errors.New("the checker timed out")
	}
	return nil
}

// plan is the operations of a transaction.
type plan struct {
	reads  []string
	writes map[string]int64
}

// randomPlan returns a random plan. Every transaction writes a unique value, or deletes.
func randomPlan(prefix string, uniqueValue int64) plan {
	p := plan{writes: map[string]int64{}}
	for k := range historyKeys {
		name := fmt.Sprint(prefix, k)
		if rand.IntN(2) == 0 {
			p.reads = append(p.reads, name)
		}
		switch rand.IntN(6) {
		case 0, 1:
			p.writes[name] = uniqueValue
		case 2:
			p.writes[name] = 0
		}
	}
	return p
}

func (p *plan) execute(tx *tables.Tx, done *transaction) error {
	*done = transaction{map[string]int64{}, p.writes}
	for _, name := range p.reads {
		n, err := value(tx, name)
		if err != nil {
			return err
		}
		done.reads[name] = n
	}
	for name, n := range p.writes {
		if n != 0 {
			if err := change(tx, name, to(n)); err != nil {
				return err
			}
			continue
		}
		if err := numbers.Delete(tx, id(name)); err != nil && !errors.Is(err, storage.ErrNotFound) {
			return err
		}
	}
	return nil
}

// model is the serial execution of transactions.
var model = porcupine.Model{
	Init: func() any { return map[string]int64{} },
	Step: func(state, input, _ any) (bool, any) {
		now, done := state.(map[string]int64), input.(transaction)
		for name, n := range done.reads {
			if now[name] != n {
				return false, state
			}
		}
		next := maps.Clone(now)
		for name, n := range done.writes {
			if next[name] = n; n == 0 {
				delete(next, name)
			}
		}
		return true, next
	},
	Equal: func(a, b any) bool { return maps.Equal(a.(map[string]int64), b.(map[string]int64)) },
}
