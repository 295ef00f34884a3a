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

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/dynamodb/internal/request"
)

// prover proves that the reader has passed all that was acknowledged before a moment.
//
// An answer without records says nothing, and an iterator at the end of a shard has no number. So the prover writes ticks: small
// items, written after that moment for the sake of the records that they leave. Once every shard that is open has shown one, and
// every one that was written has been seen, the proof is complete; then each shard has a number, too.
//
// Which shard a tick goes to is DynamoDB's choice, by the hash of its key. The key that reached a shard once is used for it again,
// so that a proof takes a tick for each open shard; the first ones, and those after a split, take some more.
//
// There is one proof at a time, for all who wait for one. One is made when the reader begins, before each snapshot, after it, and
// from time to time, so that the positions of a quiet store do not grow old.
type prover struct {
	*Config
	name    [16]byte // in its ticks
	wake    func()   // has the reader make a round soon
	writers sync.WaitGroup

	mu             sync.Mutex
	requestedProof uint64    // the newest proof that was asked for
	startedProof   uint64    // the newest proof that was started
	completedProof uint64    // the newest that is complete
	since          time.Time // when the newest complete one was begun, by the local clock
	began          time.Time // when the newest was begun, by the local clock
	asOf           time.Time // the same by AWS's
	ticks          uint64    // written
	waiting        map[uint64]bool
	writing        bool              // ticks are being written
	tickErr        error             // what kept the last ticks from being written
	provenShards   map[string]bool   // shards that returned a tick of this proof, or whose parent did
	tickOfShard    map[string]uint16 // which tick goes to a shard
	round          chan struct{}     // closed when a round of the reader ends
}

const (
	// proveEvery is how often a proof is made without anybody's asking.
	proveEvery = 30 * time.Minute
	// tickTime bounds the writing of a tick.
	tickTime = 10 * time.Second
	// tickKeys is the number of keys that ticks have, tickBatch that of the ticks written at once to find shards.
	tickKeys, tickBatch = 1 << 12, 64
)

func newProver(config *Config, wake func()) *prover {
	p := &prover{Config: config, wake: wake, waiting: map[uint64]bool{}, tickOfShard: map[string]uint16{}, round: make(chan struct{})}
	_, _ = rand.Read(p.name[:]) // never fails
	return p
}

// ask asks for a proof that begins after the call, and returns its number.
func (p *prover) ask() uint64 {
	p.mu.Lock()
	p.requestedProof = p.startedProof + 1
	n := p.requestedProof
	p.mu.Unlock()
	p.wake()
	return n
}

// wait waits for a proof that began after a moment, by the local clock, or until the reader has stopped.
func (p *prover) wait(ctx context.Context, moment time.Time, stopped <-chan struct{}) error {
	p.mu.Lock()
	fresh := p.completedProof > 0 && p.since.After(moment)
	p.mu.Unlock()
	if fresh {
		return nil
	}
	wanted := p.ask()
	for {
		p.mu.Lock()
		done, err, round := p.completedProof, p.tickErr, p.round
		p.mu.Unlock()
		switch {
		case done >= wanted:
			return nil
		case err != nil && request.Classify(err) == request.Rejected:
			return err
		}
		select {
		case <-round:
		case <-stopped:
			return driver.ErrRunEnded
		case <-ctx.Done():
			return request.Inconsistent(ctx, errors.New("the stream of changes does not answer"))
		}
	}
}

// endRound has those who wait look again.
func (p *prover) endRound() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.round)
	p.round = make(chan struct{})
}

// advance goes on with the proof that is under way, or begins one. It is called between two rounds, with the position after the
// last. complete gets the proven position before anybody learns of the proof.
func (p *prover) advance(ctx context.Context, pos *Position, t *tree, complete func(*Position)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.startedProof == p.completedProof {
		if p.requestedProof <= p.completedProof && time.Since(p.since) < proveEvery {
			return
		}
		p.startedProof++
		p.provenShards, p.began, p.asOf, p.tickErr = map[string]bool{}, time.Now(), p.Clock.Now(), nil
	}
	lacking := p.lacking(pos, t)
	switch {
	case p.writing || len(p.waiting) > 0:
	case len(lacking) > 0:
		p.writing = true
		numbers := p.ticksFor(lacking, pos)
		p.writers.Go(func() { p.writeTicks(ctx, numbers) })
	default:
		p.completedProof, p.since = p.startedProof, p.began
		after := *pos
		after.asOf, after.proofNumber = p.asOf, p.completedProof
		complete(&after)
	}
}

// lacking returns the shards in which the proof has not arrived yet. A child that is known stands for its parent only once it is being
// read: before that nothing of it is.
func (p *prover) lacking(pos *Position, t *tree) []string {
	var lacking []string
	for _, pl := range pos.shards {
		if !p.provenShards[pl.shard] && (pl.seq != shardEnd || !t.childrenKnown(pl.shard, pos)) {
			lacking = append(lacking, pl.shard)
		}
	}
	return lacking
}

// ticksFor chooses the keys of ticks that may reach the shards.
func (p *prover) ticksFor(lacking []string, pos *Position) []uint16 {
	var numbers []uint16
	unknown := false
	for _, shard := range lacking {
		if n, ok := p.tickOfShard[shard]; ok {
			numbers = append(numbers, n)
			delete(p.tickOfShard, shard) // unless it shows it again
		} else {
			unknown = true
		}
	}
	if unknown {
		for range min(2*pos.active()-1, tickBatch) {
			numbers = append(numbers, uint16(mathrand.N(tickKeys)))
		}
	}
	if len(numbers) == 0 {
		numbers = append(numbers, uint16(mathrand.N(tickKeys)))
	}
	return numbers
}

// writeTicks writes ticks of the newest proof. It runs beside the reading. A tick whose answer was lost may come or not, and is
// not waited for.
func (p *prover) writeTicks(ctx context.Context, numbers []uint16) {
	var tickErr error
	for _, n := range numbers {
		p.mu.Lock()
		p.ticks++
		serial, proof := p.ticks, p.startedProof
		p.waiting[serial] = true
		p.mu.Unlock()
		if err := p.writeTick(ctx, n, serial, proof); err != nil {
			tickErr = err
			p.mu.Lock()
			delete(p.waiting, serial)
			p.mu.Unlock()
			if request.Classify(err) == request.Rejected || !request.Sleep(ctx, p.Poll) {
				break
			}
		}
	}
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
		return fmt.Errorf("write a tick, by which the stream's reader knows how far it is: %w", err)
	}
	return nil
}

// findTicks looks for the prover's own ticks among the records of a shard.
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
		}
	}
}

// inherit notes that a shard, which is read from its beginning, has what its parent has had.
func (p *prover) inherit(shard, parent string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.provenShards[parent] {
		p.provenShards[shard] = true
	}
}

// proving reports whether a proof is under way, and for how long.
func (p *prover) proving() (bool, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.startedProof > p.completedProof, time.Since(p.began)
}

// unproven is the error of a reader whose first proof cannot be had.
func (p *prover) unproven() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.completedProof > 0:
		return nil
	case p.tickErr != nil && request.Classify(p.tickErr) == request.Rejected:
		return p.tickErr
	case time.Since(p.began) > p.Outage && p.startedProof > 0:
		return fmt.Errorf("%w: the stream did not show what was written for %v", storage.ErrInconsistent, p.Outage)
	}
	return nil
}
