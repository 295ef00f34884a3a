package dynamodb

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// An answer without records says nothing, and an iterator at the end of a shard has no number. That the reader has passed all that
// was acknowledged before a moment is known from its own ticks: small items, written after that moment for the sake of the records
// that they leave. Once every shard that is open has shown one, and every one that was written has been seen, the proof is
// complete; then each shard has a number, too.
//
// Which shard a tick goes to is DynamoDB's choice, by the hash of its key. The key that reached a shard once is used for it again,
// so that a proof takes a tick for each open shard; the first ones, and those after a split, take some more.
//
// There is one proof at a time, for all who wait for one. One is made when the reader begins, before each snapshot, after it, and
// from time to time, so that the positions of a quiet store do not grow old.
type proof struct {
	// Under reader.mu.
	wanted  uint64    // the newest that was asked for
	begun   uint64    // the newest that was begun
	done    uint64    // the newest that is complete
	since   time.Time // when the newest complete one was begun, by the local clock
	waiting map[uint64]bool
	writing bool  // ticks are being written
	failed  error // what kept the last ticks from being written

	// Of the goroutine that runs.
	shown   map[string]bool   // shards that have shown a tick of this proof, or whose parent has
	learned map[string]uint16 // which tick goes to a shard
	began   time.Time         // by the local clock
	asOf    time.Time         // by AWS's
}

const (
	// proveEvery is how often a proof is made without anybody's asking.
	proveEvery = 30 * time.Minute
	// tickTime bounds the writing of a tick.
	tickTime = 10 * time.Second
	// tickKeys is the number of keys that ticks have, tickBatch that of the ticks written at once to find shards.
	tickKeys, tickBatch = 1 << 12, 64
)

// ask asks for a proof that begins after the call, and returns its number.
func (r *reader) ask() uint64 {
	r.mu.Lock()
	r.proof.wanted = r.proof.begun + 1
	n := r.proof.wanted
	r.mu.Unlock()
	r.wake()
	return n
}

// prove waits for a proof that began after a moment, by the local clock.
func (r *reader) prove(ctx context.Context, moment time.Time) error {
	r.mu.Lock()
	fresh := r.proof.done > 0 && r.proof.since.After(moment)
	r.mu.Unlock()
	if fresh {
		return nil
	}
	wanted := r.ask()
	for {
		r.mu.Lock()
		done, failed, round := r.proof.done, r.proof.failed, r.round
		r.mu.Unlock()
		switch {
		case done >= wanted:
			return nil
		case failed != nil && judge(failed) == refused:
			return failed
		}
		select {
		case <-round:
		case <-r.stopped:
			return driver.ErrRunEnded
		case <-ctx.Done():
			return inconsistent(ctx, errors.New("the stream of changes does not answer"))
		}
	}
}

// advance goes on with the proof that is under way, or begins one. It is called between two rounds.
func (r *reader) advance(ctx context.Context) {
	p := &r.proof
	pos := r.position()
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.begun == p.done {
		if p.wanted <= p.done && time.Since(p.since) < proveEvery {
			return
		}
		p.begun++
		p.shown, p.began, p.asOf, p.failed = map[string]bool{}, time.Now(), r.b.clock.now(), nil
	}
	lacking := r.lacking(pos)
	switch {
	case p.writing || len(p.waiting) > 0:
	case len(lacking) > 0:
		p.writing = true
		numbers := r.ticksFor(lacking, pos)
		r.ticking.Go(func() { r.writeTicks(ctx, numbers) })
	default:
		p.done, p.since = p.begun, p.began
		after := *pos
		after.asOf, after.proven = p.asOf, p.done
		r.pos = &after
	}
}

// lacking returns the shards in which the proof has not arrived yet. A child that is known stands for its parent only once it is being
// read: before that nothing of it is.
func (r *reader) lacking(pos *position) []string {
	var lacking []string
	for _, pl := range pos.shards {
		if !r.proof.shown[pl.shard] && (pl.seq != ended || !r.lines.handedOn(pl.shard, pos)) {
			lacking = append(lacking, pl.shard)
		}
	}
	return lacking
}

// ticksFor chooses the keys of ticks that may reach the shards.
func (r *reader) ticksFor(lacking []string, pos *position) []uint16 {
	var numbers []uint16
	unknown := false
	for _, shard := range lacking {
		if n, ok := r.proof.learned[shard]; ok {
			numbers = append(numbers, n)
			delete(r.proof.learned, shard) // unless it shows it again
		} else {
			unknown = true
		}
	}
	if unknown {
		for range min(2*pos.active()-1, tickBatch) {
			numbers = append(numbers, uint16(rand.N(tickKeys)))
		}
	}
	if len(numbers) == 0 {
		numbers = append(numbers, uint16(rand.N(tickKeys)))
	}
	return numbers
}

// writeTicks writes ticks of the newest proof. It runs beside the reading. A tick whose answer was lost may come or not, and is
// not waited for.
func (r *reader) writeTicks(ctx context.Context, numbers []uint16) {
	var failed error
	for _, n := range numbers {
		r.mu.Lock()
		r.ticks++
		serial, round := r.ticks, r.proof.begun
		r.proof.waiting[serial] = true
		r.mu.Unlock()
		if err := r.writeTick(ctx, n, serial, round); err != nil {
			failed = err
			r.mu.Lock()
			delete(r.proof.waiting, serial)
			r.mu.Unlock()
			if judge(err) == refused || !sleep(ctx, r.b.opts.Poll) {
				break
			}
		}
	}
	r.mu.Lock()
	r.proof.writing, r.proof.failed = false, failed
	r.mu.Unlock()
	r.wake()
}

func (r *reader) writeTick(ctx context.Context, n uint16, serial, round uint64) error {
	ctx, cancel := context.WithTimeout(ctx, tickTime)
	defer cancel()
	it := r.b.tick(n)
	data := append([]byte{}, r.name[:]...)
	data = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(data, serial), round)
	it[attrData] = binaryValue(data)
	it[attrExpires] = expires(r.b.clock.now(), time.Hour)
	_, err := r.b.call(ctx, func(option func(*dynamodb.Options)) error {
		_, err := r.b.db.PutItem(ctx, &dynamodb.PutItemInput{TableName: &r.b.table, Item: it}, option)
		return err
	})
	if err != nil {
		return fmt.Errorf("write a tick, by which the stream's reader knows how far it is: %w", err)
	}
	return nil
}

// see looks for the reader's own ticks among the records of a shard.
func (r *reader) see(shard string, records []types.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range records {
		if records[i].Dynamodb == nil {
			continue
		}
		class, key := r.b.class(fromStream(records[i].Dynamodb.Keys).bytes(attrPK))
		if class != classTick || len(key) != 2 {
			continue
		}
		data := fromStream(records[i].Dynamodb.NewImage).bytes(attrData)
		if len(data) != len(r.name)+16 || [16]byte(data[:16]) != r.name {
			continue
		}
		serial, round := binary.BigEndian.Uint64(data[16:]), binary.BigEndian.Uint64(data[24:])
		delete(r.proof.waiting, serial)
		r.proof.learned[shard] = binary.BigEndian.Uint16(key)
		if round == r.proof.begun {
			r.proof.shown[shard] = true
		}
	}
}

// begin goes on in shards, which have what their parents have had.
func (r *reader) begin(pos *position, heirs []place) *position {
	for _, heir := range heirs {
		if parent := r.lines.parentOf(heir.shard); parent != "" && heir.seq == "" && r.proof.shown[parent] {
			r.proof.shown[heir.shard] = true
		}
		pos = pos.with(heir.shard, heir.seq)
	}
	return pos
}

// unproven is the error of a reader whose first proof cannot be had.
func (r *reader) unproven() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.proof.done > 0:
		return nil
	case r.proof.failed != nil && judge(r.proof.failed) == refused:
		return r.proof.failed
	case time.Since(r.proof.began) > r.b.opts.Outage && r.proof.begun > 0:
		return fmt.Errorf("%w: the stream did not show what was written for %v", storage.ErrInconsistent, r.b.opts.Outage)
	}
	return nil
}
