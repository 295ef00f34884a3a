package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// client makes calls through one handle and records them. It is not safe for concurrent use.
type client struct {
	round   *round
	name    string
	handle  int
	b       storage.Backend
	random  *rand.Rand
	writes  int
	readIDs []*resourcepb.ID // resources that it has read lately
}

// newClient returns a client of a handle. Its random source depends on the seed, the round and its name only.
func newClient(r *round, name string, handle int) *client {
	return &client{round: r, name: name, handle: handle, b: r.run.handles[handle], random: r.run.source(fmt.Sprint(r.number, name))}
}

// begin records a call before it is made.
func (c *client) begin(kind string, timeout time.Duration, parts ...part) *call {
	k := &call{kind: kind, client: c.name, handle: c.handle, parts: parts, timeout: timeout, end: forever, returnTime: forever}
	k.process = generation(c.b)
	k.begin = c.round.run.now()
	c.round.addCall(k)
	return k
}

// finishCall records the end of a call.
func (c *client) finishCall(k *call, err error) {
	k.returnTime = c.round.run.now()
	k.err = err
	if k.process != generation(c.b) {
		k.process = -1
	}
	switch {
	case err == nil:
		k.outcome, k.end = outcomeDone, k.returnTime
	case errors.Is(err, storage.ErrInconsistent):
		if !k.changes() {
			k.end = k.returnTime
		}
	case !k.reads() && (errors.Is(err, storage.ErrCASFailure) || errors.Is(err, storage.ErrWrongUid)):
		k.outcome, k.end = outcomeRefused, k.returnTime
		blame(k, err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		k.outcome, k.end = outcomeRefused, k.returnTime // nothing was sent
	case errors.Is(err, storage.ErrCompacted) && k.mayBeCompacted:
		k.outcome, k.end = outcomeRefused, k.returnTime
	default:
		k.outcome, k.end = outcomeRefused, k.returnTime
		c.round.report(Violation{"errors", fmt.Sprintf("no call may return this error: %s", k)})
	}
}

// blame records which part of a call was refused, and the reason.
func blame(c *call, err error) {
	at := 0
	var op *storage.OpError
	if errors.As(err, &op) {
		at = op.Index
	}
	if at >= len(c.parts) {
		return
	}
	for _, sentinel := range []error{storage.ErrCASFailure, storage.ErrWrongUid} {
		if errors.Is(err, sentinel) {
			c.parts[at].refusalCause = sentinel
		}
	}
}

// callContext is a context for one call: it ends by its deadline, or is cancelled at that time.
func (c *client) callContext(timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout < time.Second && c.random.IntN(3) == 0 {
		ctx, cancel := context.WithCancel(context.Background())
		timer := time.AfterFunc(timeout, cancel)
		return ctx, func() { timer.Stop(); cancel() }
	}
	return context.WithTimeout(context.Background(), timeout)
}

// consistency returns the read consistency of a call.
func consistency(strong bool) storage.ReadConsistency {
	if strong {
		return storage.StrongConsistency
	}
	return storage.EventualConsistency
}

// read reads a key. known is false if the store gave no answer.
func (c *client) read(key string, strong bool, timeout time.Duration) (got state, known bool) {
	ctx, cancel := c.callContext(timeout)
	defer cancel()
	k := c.begin(consistency(strong).String()+" read", timeout, part{verb: read, key: key})
	k.strong = strong
	res, err := c.b.Read(ctx, consistency(strong), idOf(c.round.namespace, key, ""))
	if errors.Is(err, storage.ErrNotFound) {
		res, err = nil, nil
	}
	if err == nil {
		k.parts[0] = readPart(key, res)
		c.rememberOwner(res)
		c.checkContent(res)
	}
	c.finishCall(k, err)
	return k.parts[0].observedState, err == nil
}

// checkContent checks the content of a resource that was read.
func (c *client) checkContent(res *resourcepb.Resource) {
	if res == nil {
		return
	}
	if wrong := contentError(res); wrong != "" {
		c.round.report(Violation{"content", fmt.Sprintf("%s on handle %d: %s", c.name, c.handle, wrong)})
	}
}

// nextWriteName returns a new name for a write.
func (c *client) nextWriteName() string {
	c.writes++
	return fmt.Sprintf("%s.%d.%d", c.name, c.round.number, c.writes)
}

// resource returns a resource to write in place of the expected state, and the part of the call that writes it.
func (c *client) resource(key string, given state, size int) (*resourcepb.Resource, part) {
	if given.uid == "" {
		given.uid = fmt.Sprintf("uid-%016x", c.random.Uint64())
	}
	p := part{verb: write, key: key, expectedState: given, name: c.nextWriteName()}
	res := newResource(idOf(c.round.namespace, key, given.uid), p.name, given.version, size, c.random)
	if c.random.IntN(2) == 0 {
		res.Owner = c.owner()
	}
	p.owner = ownerOf(res.Owner)
	return res, p
}

// write writes to a key and returns the resulting state, if it is known.
func (c *client) write(key string, given state, size int, last bool, timeout time.Duration) (state, error) {
	res, p := c.resource(key, given, size)
	if last {
		res.Metadata[metaLast] = "yes"
	}
	ctx, cancel := c.callContext(timeout)
	defer cancel()
	k := c.begin("write", timeout, p)
	out, err := c.b.WriteCAS(ctx, res)
	if err == nil {
		k.parts[0].observedState = state{out.GetId().GetUid(), out.GetVersion()}
	}
	c.finishCall(k, err)
	return k.parts[0].observedState, err
}

// delete deletes the expected state.
func (c *client) delete(key string, given state, timeout time.Duration) error {
	ctx, cancel := c.callContext(timeout)
	defer cancel()
	k := c.begin("delete", timeout, part{verb: remove, key: key, expectedState: given})
	err := c.b.DeleteCAS(ctx, idOf(c.round.namespace, key, given.uid), given.version)
	c.finishCall(k, err)
	return err
}

// commit commits a transaction.
func (c *client) commit(ops []storage.Op, parts []part, timeout time.Duration) error {
	transactor, ok := storage.As[storage.Transactor](c.b)
	if !ok {
		return nil
	}
	ctx, cancel := c.callContext(timeout)
	defer cancel()
	k := c.begin("transaction", timeout, parts...)
	results, err := transactor.Commit(ctx, ops)
	if err == nil && len(results) != len(ops) {
		c.round.report(Violation{"errors", fmt.Sprintf("%d results for %d operations: %s", len(results), len(ops), k)})
		err = storage.ErrInconsistent
	}
	for i := range parts {
		if err == nil && k.parts[i].verb == write {
			k.parts[i].observedState = state{results[i].GetId().GetUid(), results[i].GetVersion()}
		}
	}
	c.finishCall(k, err)
	return err
}

// list lists a round's keys.
func (c *client) list(strong bool, timeout time.Duration) {
	ctx, cancel := c.callContext(timeout)
	defer cancel()
	k := c.begin(consistency(strong).String()+" list", timeout)
	k.strong, k.isSnapshot = strong, c.round.run.h.ListIsNoSnapshot == ""
	all, err := c.b.List(ctx, consistency(strong), thing, roundTenancy(c.round.namespace), "")
	if err == nil {
		k.parts = c.listParts(k.kind, all)
	}
	c.finishCall(k, err)
}

// listParts returns the part of each key of the round. A key that the list lacks is absent.
func (c *client) listParts(kind string, resources []*resourcepb.Resource) (parts []part) {
	seen := make(map[string]bool, len(resources))
	for i, res := range resources {
		c.checkContent(res)
		key := res.GetId().GetName()
		parts = append(parts, readPart(key, res))
		if i > 0 && resources[i-1].GetId().GetName() >= key {
			c.round.report(Violation{"order of lists", fmt.Sprintf("%s of %s on handle %d: %s after %s", kind, c.name, c.handle, key, resources[i-1].GetId().GetName())})
		}
		seen[key] = true
	}
	for _, key := range c.round.keys {
		if !seen[key] {
			parts = append(parts, part{verb: read, key: key})
		}
	}
	return parts
}

// pages lists a round's keys in pages. The snapshot is taken while the first page is made.
func (c *client) pages(strong bool, timeout time.Duration) {
	pager, ok := storage.As[storage.Pager](c.b)
	if !ok {
		return
	}
	k := c.begin(consistency(strong).String()+" pages", 0)
	k.strong, k.isSnapshot, k.mayBeCompacted = strong, c.round.run.h.ListIsNoSnapshot == "", true
	opts := storage.ListOptions{Consistency: consistency(strong), Limit: 1 + c.random.IntN(4)}
	var all []*resourcepb.Resource
	var cursor string
	var first time.Duration
	for attempt, n := 0, 0; ; n++ {
		ctx, cancel := c.callContext(timeout)
		began := c.round.run.now()
		page, err := pager.ListPage(ctx, thing, roundTenancy(c.round.namespace), "", opts)
		cancel()
		c.round.run.checkTimeout(c.round.roundLog, k, began, timeout)
		if err != nil {
			if attempt++; attempt < 3 && n > 0 && errors.Is(err, storage.ErrInconsistent) {
				continue // the token is as good as before
			}
			c.finishCall(k, err)
			return
		}
		if first == 0 {
			first = c.round.run.now()
		}
		all, cursor = append(all, page.Resources...), page.Cursor
		if opts.Continue = page.Continue; page.Continue == "" {
			break
		}
		if n > 1000 {
			c.round.report(Violation{"pages", fmt.Sprintf("no end after %d pages: %s", n, k)})
			return
		}
	}
	k.parts = c.listParts(k.kind, all)
	c.finishCall(k, nil)
	if k.isSnapshot {
		k.end = first
		c.round.addOrigin(origin{cursor: cursor, list: k, newest: lowerBound{since: k.begin}})
	}
}

// pick returns one of the round's keys. One in three times it is a cold key.
func (c *client) pick() string {
	keys := c.round.keys
	if hot := max(1, len(keys)/4); c.random.IntN(3) > 0 {
		return keys[c.random.IntN(hot)]
	}
	return keys[c.random.IntN(len(keys))]
}

// pickKeys returns different keys.
func (c *client) pickKeys(n int) (keys []string) {
	for len(keys) < n {
		if key := c.pick(); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// rememberOwner stores a resource that was read, as a later owner of others. It may be deleted before it is named as an owner.
func (c *client) rememberOwner(res *resourcepb.Resource) {
	const remembered = 4
	if res == nil {
		return
	}
	if c.readIDs = append(c.readIDs, res.GetId()); len(c.readIDs) > remembered {
		c.readIDs = c.readIDs[1:]
	}
}

// owner returns an owner for a write or for owner references: one that is never stored, or a resource of the round.
func (c *client) owner() *resourcepb.ID {
	if n := c.random.IntN(2 * absentOwners); n < absentOwners || len(c.readIDs) == 0 {
		n %= absentOwners
		return idOf(c.round.namespace, fmt.Sprintf("owner-%d", n), fmt.Sprintf("uid-of-owner-%d", n))
	}
	return c.readIDs[c.random.IntN(len(c.readIDs))]
}

// reportCompaction records that a call of the client failed because history was compacted.
func (c *client) reportCompaction(what string, from lowerBound, err error) {
	c.round.addCompaction(compactionReport{c.name, what, c.handle, from, c.round.run.now(), err})
}

// randomTimeout returns a timeout. One in three is short, and shorter ones are more likely, so that deadlines pass at every
// point of a call.
func (c *client) randomTimeout() time.Duration {
	if c.random.IntN(3) > 0 {
		return longTimeout
	}
	most := time.Millisecond << c.random.IntN(9)
	return time.Duration(1 + c.random.Int64N(int64(most)))
}

// size returns the size of a new resource: usually small, sometimes the maximum.
func (c *client) size() int {
	switch chance := c.random.IntN(1000); {
	case chance < 2:
		return c.round.run.h.MaxSize - 1024 // with room for the fields around the data
	case chance < 6:
		return c.random.IntN(c.round.run.h.MaxSize / 2)
	case chance < 200:
		return 0
	}
	return c.random.IntN(2000)
}

// absentOwners is the number of owners that are never stored: a reference needs no stored owner.
const absentOwners = 3
