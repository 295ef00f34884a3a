package faults

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
)

// scanRound reads the keys of the round at present or, one time in three, at the revision of an earlier scan: whole or in parts,
// each with its own deadline.
func scanRound(c *client, timeout time.Duration) {
	h, ok := c.round.run.historian(c.handle)
	if !ok {
		return
	}
	var opts history.ScanOptions
	if c.random.IntN(2) == 0 {
		opts.Limit = 1 + c.random.IntN(4)
	}
	at, past := c.round.randomPin(c.random)
	if past = past && c.random.IntN(3) == 0; past {
		opts.Revision = at.revision
		scanAtRevision(c, h, at, opts, timeout)
		return
	}
	_, _ = scanPresent(c, h, opts, timeout)
}

// scanPresent reads the present keys of the round. It returns false if the store gave no answer.
func scanPresent(c *client, h history.Historian, opts history.ScanOptions, timeout time.Duration) (*view, bool) {
	k := c.begin("scan", 0)
	k.strong, k.isSnapshot = true, true
	records, revision, first, err := scanParts(c, h, k, pinnedRevision{since: k.begin}, keyRangeOf(c.round.namespace, ""), opts, timeout)
	if err == nil {
		k.parts = c.listParts(k.kind, resourcesOf(records))
	}
	c.finishCall(k, err)
	if err != nil {
		return nil, false
	}
	k.end = first // later parts are of the same revision
	v := viewOf(c, k, revision, c.round.keys, records)
	c.round.addReading(reading{call: k, revision: revision})
	c.round.addView(v)
	c.round.pin(pinnedRevision{revision, k.begin})
	return v, true
}

// scanAtRevision reads the keys of the round at an earlier revision. Its result is not a read of the present, so the call has
// no parts.
func scanAtRevision(c *client, h history.Historian, at pinnedRevision, opts history.ScanOptions, timeout time.Duration) {
	k := c.begin("scan of the past", 0)
	records, _, _, err := scanParts(c, h, k, at, keyRangeOf(c.round.namespace, ""), opts, timeout)
	if err == nil {
		_ = c.listParts(k.kind, resourcesOf(records)) // their order and content
	}
	c.finishCall(k, err)
	if err == nil {
		c.round.addView(viewOf(c, k, at.revision, c.round.keys, records))
	}
}

// scanParts scans a range in parts until its end. It returns their revision, and the time of the first answer.
func scanParts(c *client, h history.Historian, k *call, at pinnedRevision, span history.Range, opts history.ScanOptions, timeout time.Duration) (all []history.Record, revision int64, first time.Duration, err error) {
	for attempt, n := 0, 0; ; n++ {
		ctx, cancel := c.callContext(timeout)
		began := c.round.run.now()
		scan, err := h.Scan(ctx, span, opts)
		cancel()
		c.round.run.checkTimeout(c.round.roundLog, k, began, timeout)
		if err != nil {
			if attempt++; attempt < 3 && n > 0 && errors.Is(err, storage.ErrInconsistent) {
				continue // the revision is as good as before
			}
			if k.mayBeCompacted = opts.Revision != 0 && c.round.run.h.offers(Compact); k.mayBeCompacted && errors.Is(err, storage.ErrCompacted) {
				c.reportCompaction("Scan", lowerBound{since: at.since}, err)
			}
			return nil, 0, 0, err
		}
		if first == 0 {
			first = c.round.run.now()
		}
		if opts.Revision != 0 && scan.Revision != opts.Revision {
			c.round.report(Violation{"the past stays", fmt.Sprintf("a scan at revision %d returned revision %d: %s", opts.Revision, scan.Revision, k)})
		}
		opts.Revision = scan.Revision
		if all = append(all, scan.Records...); !scan.More {
			return all, scan.Revision, first, nil
		}
		if len(scan.Records) == 0 || n > 1000 {
			c.round.report(Violation{"the past stays", fmt.Sprintf("no end after %d parts, the last one with %d records: %s", n+1, len(scan.Records), k)})
			return nil, 0, 0, fmt.Errorf("%w: a scan without an end", storage.ErrInconsistent)
		}
		span = scan.Rest
	}
}

func viewOf(c *client, k *call, revision int64, keys []string, records []history.Record) *view {
	v := &view{call: k, revision: revision, keys: keys, records: make(map[string]record, len(records))}
	for i := range records {
		v.records[records[i].Resource.GetId().GetName()] = recordOf(&records[i])
	}
	return v
}

// swapKey reads a key with its revisions, and writes or deletes it if it has not been changed since.
func swapKey(c *client, key string, timeout time.Duration) {
	h, ok := c.round.run.historian(c.handle)
	if !ok {
		return
	}
	seen, ok := scanKey(c, h, key, timeout)
	if !ok {
		return
	}
	swap := history.Swap{Expect: seen.modRevision}
	var p part
	if seen.uid != "" && c.random.IntN(4) == 0 {
		swap.Delete, p = idOf(c.round.namespace, key, ""), part{verb: remove, key: key, expectedState: seen.state}
	} else {
		swap.Write, p = c.resource(key, seen.state, c.size())
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	k := c.begin("swap", timeout, p)
	swapped, err := h.Swap(ctx, swap)
	if err == nil && !swapped.Done {
		c.finishCall(k, fmt.Errorf("%w: the key was changed at another revision than %d", storage.ErrCASFailure, swap.Expect))
		k.parts[0].refusalCause = nil // swaps have another decision table than WriteCAS and DeleteCAS; checkSerial uses the conflicting state
		noteConflict(c, k, swapped)
		return
	}
	if err == nil {
		k.revision = swapped.Revision
		if swap.Write != nil {
			k.parts[0].observedState = recordOf(swapped.Stored).state
		}
	}
	c.finishCall(k, err)
}

// noteConflict records the stored state that a failed swap returned, which is a strong read of the key.
func noteConflict(c *client, swap *call, swapped history.SwapResult) {
	key, is := swap.parts[0].key, recordOf(swapped.Stored)
	k := c.begin("answer of a swap", 0, readPart(key, nil))
	k.begin, k.strong = swap.begin, true
	if swapped.Stored != nil {
		k.parts[0] = readPart(key, swapped.Stored.Resource)
		c.checkContent(swapped.Stored.Resource)
	}
	c.finishCall(k, nil)
	k.end, k.returnTime = swap.returnTime, swap.returnTime
	c.round.addView(&view{call: k, revision: swapped.Revision, keys: []string{key}, records: map[string]record{key: is}})
}

// scanKey reads one key with a scan. It returns false if the store gave no answer.
func scanKey(c *client, h history.Historian, key string, timeout time.Duration) (record, bool) {
	ctx, cancel := c.callContext(timeout)
	defer cancel()
	k := c.begin("scan of a key", timeout, part{verb: read, key: key})
	k.strong = true
	scan, err := h.Scan(ctx, keyRangeOf(c.round.namespace, key), history.ScanOptions{})
	if err == nil && len(scan.Records) > 0 {
		k.parts[0] = readPart(key, scan.Records[0].Resource)
		c.checkContent(scan.Records[0].Resource)
	}
	c.finishCall(k, err)
	if err != nil {
		return record{}, false
	}
	v := viewOf(c, k, scan.Revision, []string{key}, scan.Records)
	c.round.addReading(reading{call: k, revision: scan.Revision})
	c.round.addView(v)
	return v.records[key], true
}

// readRevisions reads the oldest and the newest revision.
func readRevisions(c *client, timeout time.Duration) {
	h, ok := c.round.run.historian(c.handle)
	if !ok {
		return
	}
	ctx, cancel := c.callContext(timeout)
	defer cancel()
	k := c.begin("revisions", timeout)
	oldest, latest, err := h.Revisions(ctx)
	c.finishCall(k, err)
	if err == nil {
		c.round.addReading(reading{call: k, revision: latest, oldest: oldest})
	}
}
