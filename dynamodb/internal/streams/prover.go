package streams

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"golang.org/x/sync/errgroup"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/dynamodb/internal/request"
)

// prover proves that the reader has passed everything that was acknowledged before a moment.
//
// An answer without records proves nothing, and an iterator at the end of a shard has no number. The prover therefore writes ticks:
// small items, written after that moment for the records that they cause. The proof is complete when every open shard has returned
// a tick and every written tick has been found; then each shard also has a number.
//
// DynamoDB assigns a tick to a shard by the hash of its key. A key that reached a shard once is used for it again, so a proof needs
// one tick for each open shard. The first proofs, and those after a split, need some more. A shard that contains only a part of one
// type is reached by no tick, so a proof gives up after some ticks, and the next one begins after a pause.
//
// No watch depends on a proof: see Baseline. Proofs give numbers to quiet shards, and with them exact cursors, keep the positions of a
// quiet store recent, and free baselines. One proof at a time serves all waiting callers. A proof is made when the reader starts,
// before each snapshot, after it, and periodically.
type prover struct {
	*Config
	name    [16]byte // in its ticks
	wake    func()   // makes the reader start a round soon
	writers sync.WaitGroup

	mu             sync.Mutex
	requestedProof uint64    // the newest requested proof
	startedProof   uint64    // the newest started proof
	completedProof uint64    // the newest complete proof
	since          time.Time // start of the newest complete proof, by the local clock
	began          time.Time // start of the newest proof, by the local clock
	asOf           time.Time // start of the newest proof, by AWS's clock
	ticks          uint64    // number of written ticks
	waiting        map[uint64]bool
	writing        bool                 // ticks are being written
	tickErr        error                // the error of the last ticks
	provenShards   map[string]bool      // shards that returned a tick of this proof, or whose parent did
	provenTimes    map[string]time.Time // by shard, a time: the reader has passed everything in it acknowledged before
	tickOfShard    map[string]uint16    // the tick that reaches a shard
	proofTicks     int                  // number of ticks of this proof
	attempts       int                  // number of times that ticks of this proof were written
	gaveUp         bool                 // this proof has given up
	nextAttempt    time.Time            // earliest start of the proof after a stalled one, by the local clock
	pause          time.Duration        // before it
	round          chan struct{}        // closed when a round of the reader ends
}

const (
	// proveEvery is the interval of proofs without a request.
	proveEvery = 30 * time.Minute
	// tickTime bounds the writing of a tick.
	tickTime = 10 * time.Second
	// tickKeys is the number of keys of ticks: so many that some reach each of thousands of shards.
	tickKeys = 1 << 16
	// maxTicks is the maximum number of a proof's ticks for shards without a known key, and maxAttempts the maximum number of times
	// that they are written. maxWrites ticks are written concurrently.
	maxTicks, maxAttempts, maxWrites = 1 << 12, 4, 64
	// minPause and maxPause bound the pause after a proof that gave up.
	minPause, maxPause = time.Second, proveEvery
	// proofTime is how long a snapshot waits for a proof after its call, and how long the reader reads faster because of one.
	proofTime = 2 * time.Second
	// exactProofTime replaces proofTime for a caller that needs an exact cursor.
	exactProofTime = 20 * time.Second
)

func newProver(config *Config, wake func()) *prover {
	p := &prover{Config: config, wake: wake, waiting: map[uint64]bool{}, provenTimes: map[string]time.Time{}, tickOfShard: map[string]uint16{}, round: make(chan struct{})}
	_, _ = rand.Read(p.name[:]) // never fails
	return p
}

// requestProof requests a proof that begins after the call, and returns its number.
func (p *prover) requestProof() uint64 {
	p.mu.Lock()
	p.requestedProof = p.startedProof + 1
	n := p.requestedProof
	p.mu.Unlock()
	p.wake()
	return n
}

// wait waits for a proof that began after a moment, by the local clock. Without a proof it returns at the time
// until, or when the proof gives up. The error reports a reader that has stopped, or the context's end.
func (p *prover) wait(ctx context.Context, moment, until time.Time, stopped <-chan struct{}) error {
	p.mu.Lock()
	fresh := p.completedProof > 0 && p.since.After(moment)
	p.mu.Unlock()
	if fresh {
		return nil
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	_, err := p.await(ctx, p.requestProof(), timer.C, stopped)
	return err
}

// await waits for a proof. It returns false at the time until, or when the proof gives up.
func (p *prover) await(ctx context.Context, wanted uint64, until <-chan time.Time, stopped <-chan struct{}) (proven bool, err error) {
	for {
		p.mu.Lock()
		done, err, stalled, round := p.completedProof, p.tickErr, p.gaveUp, p.round
		p.mu.Unlock()
		switch {
		case done >= wanted:
			return true, nil
		case stalled || err != nil && request.Classify(err) == request.Rejected:
			return false, nil
		}
		select {
		case <-round:
		case <-until:
			return false, nil
		case <-stopped:
			return false, driver.ErrRunEnded
		case <-ctx.Done():
			return false, request.Inconsistent(ctx, errors.New("the reader of the table's stream could not prove its progress before the deadline"))
		}
	}
}

// awaitRound waits until the reader has published what a completed proof is about: it publishes at the end of its round.
func (p *prover) awaitRound(ctx context.Context, stopped <-chan struct{}) error {
	p.mu.Lock()
	round := p.round
	p.mu.Unlock()
	p.wake()
	select {
	case <-round:
		return nil
	case <-stopped:
		return driver.ErrRunEnded
	case <-ctx.Done():
		return ctx.Err()
	}
}

// endRound wakes the waiting callers.
func (p *prover) endRound() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.round)
	p.round = make(chan struct{})
}

// advance continues the proof in progress, or starts one. It is called between two rounds, with the position after the last one.
// complete receives the proven position before any caller learns of the proof.
func (p *prover) advance(ctx context.Context, pos *Position, t *tree, complete func(*Position)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.startedProof == p.completedProof || p.gaveUp {
		if p.requestedProof <= p.completedProof && time.Since(p.since) < proveEvery || time.Now().Before(p.nextAttempt) {
			p.passProven(pos, t, complete)
			return
		}
		p.startedProof++
		p.provenShards, p.began, p.asOf, p.tickErr = map[string]bool{}, time.Now(), p.Clock.Now(), nil
		p.proofTicks, p.attempts, p.gaveUp, p.nextAttempt = 0, 0, false, time.Time{}
	}
	unreached := p.unreachedShards(pos, t)
	switch {
	case p.writing || len(p.waiting) > 0:
	case len(unreached) > 0 && p.attempts >= maxAttempts:
		p.pause = min(max(2*p.pause, minPause), maxPause)
		p.gaveUp, p.nextAttempt = true, time.Now().Add(p.pause)
	case len(unreached) > 0:
		p.writing = true
		p.attempts++
		numbers := p.ticksFor(unreached, pos)
		p.writers.Go(func() { p.writeTicks(ctx, numbers) })
	default:
		p.completedProof, p.since, p.pause = p.startedProof, p.began, 0
		for _, pl := range pos.shards {
			p.provenTimes[pl.shard] = p.asOf
		}
		after := *pos
		after.asOf, after.proofNumber = p.asOf, p.completedProof
		complete(&after)
		return
	}
	p.passProven(pos, t, complete)
}

// passProven passes on the time up to which all shards are proven, if it is later than the position's. The caller holds mu.
func (p *prover) passProven(pos *Position, t *tree, complete func(*Position)) {
	var asOf time.Time
	for _, pl := range pos.shards {
		at := p.provenTimes[pl.shard]
		if pl.seq == shardEnd && t.childrenKnown(pl.shard, pos) {
			continue
		}
		if asOf.IsZero() || at.Before(asOf) {
			asOf = at
		}
	}
	if asOf.After(pos.asOf.Add(time.Minute)) {
		after := *pos
		after.asOf = asOf
		complete(&after)
	}
}

// recordEnd records the end of a shard, which is a proof for the time when it was still open: an answer promised more records. The
// promise may have come late.
func (p *prover) recordEnd(shard string, lastAnswer time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := lastAnswer.Add(-latest); at.After(p.provenTimes[shard]) {
		p.provenTimes[shard] = at
	}
}

// recordStart records that the reader starts shards with everything acknowledged before a time.
func (p *prover) recordStart(places []shardPosition, asOf time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pl := range places {
		p.provenTimes[pl.shard] = asOf
	}
}

// unreachedShards returns the shards that the proof has not reached yet. A known child counts instead of its parent only when it is being
// read; before that none of its records were read.
func (p *prover) unreachedShards(pos *Position, t *tree) []string {
	var unreached []string
	for _, pl := range pos.shards {
		if !p.provenShards[pl.shard] && (pl.seq != shardEnd || !t.childrenKnown(pl.shard, pos)) {
			unreached = append(unreached, pl.shard)
		}
	}
	return unreached
}

// ticksFor chooses the keys of ticks that may reach the shards.
func (p *prover) ticksFor(unreached []string, pos *Position) []uint16 {
	var numbers []uint16
	unknown := false
	for _, shard := range unreached {
		if n, ok := p.tickOfShard[shard]; ok {
			numbers = append(numbers, n)
			delete(p.tickOfShard, shard) // restored if the tick appears there again
		} else {
			unknown = true
		}
	}
	if unknown {
		n := min(2*pos.active()-1, maxTicks-p.proofTicks)
		p.proofTicks += n
		for range n {
			numbers = append(numbers, uint16(mathrand.N(tickKeys)))
		}
	}
	if len(numbers) == 0 {
		numbers = append(numbers, uint16(mathrand.N(tickKeys)))
	}
	return numbers
}

// writeTicks writes ticks of the newest proof, concurrently with the reading. A tick whose answer was lost may appear or not, and
// the proof does not wait for it. After a permanent error it writes no further ticks.
func (p *prover) writeTicks(ctx context.Context, numbers []uint16) {
	var tickErr error // guarded by p.mu
	var g errgroup.Group
	g.SetLimit(maxWrites)
	for _, n := range numbers {
		p.mu.Lock()
		if tickErr != nil && request.Classify(tickErr) == request.Rejected || ctx.Err() != nil {
			p.mu.Unlock()
			break
		}
		p.ticks++
		serial, proof := p.ticks, p.startedProof
		p.waiting[serial] = true
		p.mu.Unlock()
		g.Go(func() error {
			err := p.writeTick(ctx, n, serial, proof)
			if err != nil {
				p.mu.Lock()
				tickErr = err
				delete(p.waiting, serial)
				p.mu.Unlock()
				request.Sleep(ctx, p.Poll)
			}
			return nil
		})
	}
	_ = g.Wait()
	p.mu.Lock()
	p.writing, p.tickErr = false, tickErr
	p.mu.Unlock()
	p.wake()
}

func (p *prover) writeTick(ctx context.Context, n uint16, serial, proof uint64) error {
	ctx, cancel := context.WithTimeout(ctx, tickTime)
	defer cancel()
	data := append([]byte{}, p.name[:]...)
	data = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(data, serial), proof)
	if err := p.Table.WriteTick(ctx, n, data); err != nil {
		return fmt.Errorf("write a tick, which shows the progress of the stream's reader: %w", err)
	}
	return nil
}

// findTicks searches the records of a shard for the prover's own ticks.
func (p *prover) findTicks(shard string, records []types.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range records {
		n, data, ok := p.Table.Tick(&records[i])
		if !ok || len(data) != len(p.name)+16 || [16]byte(data[:16]) != p.name {
			continue
		}
		serial, proof := binary.BigEndian.Uint64(data[16:]), binary.BigEndian.Uint64(data[24:])
		delete(p.waiting, serial)
		p.tickOfShard[shard] = n
		if proof == p.startedProof {
			p.provenShards[shard] = true
			p.provenTimes[shard] = p.asOf
		}
	}
}

// inherit records that a shard, which is read from its beginning, has the proofs of its parent.
func (p *prover) inherit(shard, parent string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.provenShards[parent] {
		p.provenShards[shard] = true
	}
	p.provenTimes[shard] = p.provenTimes[parent]
}

// proving reports whether a proof is in progress, and for how long.
func (p *prover) proving() (bool, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.startedProof > p.completedProof && !p.gaveUp, time.Since(p.began)
}

// forget drops the state of shards that a position does not contain.
func (p *prover) forget(pos *Position) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for shard := range p.provenTimes {
		if _, there := pos.get(shard); !there {
			delete(p.provenTimes, shard)
			delete(p.tickOfShard, shard)
		}
	}
}
