package tablestest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/ashlar-dev/storage/conformance/faults"
)

// processes opens two more stores, each on a handle in another process, and applies the rules S1, S3 and S4 to them. In every second history
// one of the processes is killed and started again. Finally all stores must equal the database.
func processes(w *world) error {
	others := faults.NewProcesses(w.url)
	pair := &world{ctx: w.ctx, h: w.h, handle: others.Open, remote: true}
	defer func() { w.stores, w.handles = append(w.stores, pair.stores...), append(w.handles, pair.handles...) }()
	for range 2 {
		if _, err := pair.open(nil); err != nil {
			return err
		}
	}
	kill := func(ctx context.Context) error {
		start, err := others.Faults()[0].Inject(ctx, rand.New(rand.NewPCG(1, 2)))
		if err != nil {
			return err
		}
		return start(ctx)
	}
	for h := range pair.histories() {
		var halfway func(context.Context) error
		if h%2 == 1 {
			halfway = kill
		}
		if err := history(pair, fmt.Sprintf("p%d-", h), halfway); err != nil {
			return err
		}
	}
	for _, rule := range []func(*world) error{linearizableViews, viewsAreWhole} {
		if w.h.NoBookmarker != "" {
			break // both need Linearizable Views
		}
		if err := rule(pair); err != nil {
			return err
		}
	}
	return errors.Join(converge(pair), converge(w))
}
