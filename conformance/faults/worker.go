package faults

import (
	"errors"
	"fmt"
	"time"

	"github.com/ashlar-dev/storage"
)

// work makes random calls until stop is closed.
func work(c *client, stop <-chan struct{}) {
	known := make(map[string]state)
	for step := 0; ; step++ {
		// A step depends on the seed and its number only.
		c.random = c.round.run.source(fmt.Sprint(c.round.number, c.name, " ", step))
		select {
		case <-stop:
			return
		default:
			doStep(c, known, c.randomTimeout())
		}
	}
}

// doStep makes one call, or a few related ones. known contains the state of each key as known to the client.
func doStep(c *client, known map[string]state, timeout time.Duration) {
	key := c.pick()
	switch chance := c.random.IntN(109); {
	case chance < 14:
		readKnown(c, known, key, true, timeout)
	case chance < 28:
		readKnown(c, known, key, false, timeout)
	case chance < 52: // as a client should
		if readKnown(c, known, key, c.random.IntN(2) == 0, timeout) {
			changeKey(c, known, key, timeout)
		}
	case chance < 62: // from memory
		changeKey(c, known, key, timeout)
	case chance < 66: // wrongly
		wrong := known[key]
		if c.random.IntN(2) == 0 {
			wrong.uid = "" // a new one will be made
		} else {
			wrong.version = "no-such-version"
		}
		_, _ = c.write(key, wrong, 0, false, timeout)
	case chance < 82:
		transact(c, known, timeout)
	case chance < 86:
		c.list(true, timeout)
	case chance < 88:
		c.list(false, timeout)
	case chance < 91:
		references(c, timeout)
	case chance < 94:
		c.pages(c.random.IntN(2) == 0, timeout)
	case chance < 97:
		watchBriefly(c, timeout)
	case chance < 100:
		resumeFromOrigin(c, timeout)
	case chance < 105:
		scanRound(c, timeout)
	case chance < 108:
		swapKey(c, key, timeout)
	default:
		readRevisions(c, timeout)
	}
}

// readKnown reads a key.
func readKnown(c *client, known map[string]state, key string, strong bool, timeout time.Duration) bool {
	got, ok := c.read(key, strong, timeout)
	if ok {
		known[key] = got
	}
	return ok
}

// changeKey writes or deletes the state that the client knows.
func changeKey(c *client, known map[string]state, key string, timeout time.Duration) {
	given := known[key]
	var err error
	if given.uid != "" && c.random.IntN(4) == 0 {
		if err = c.delete(key, given, timeout); err == nil {
			known[key] = state{}
		}
	} else {
		var got state
		if got, err = c.write(key, given, c.size(), false, timeout); err == nil {
			known[key] = got
		}
	}
	if errors.Is(err, storage.ErrCASFailure) || errors.Is(err, storage.ErrWrongUid) {
		readKnown(c, known, key, true, timeout)
	}
}

// transact commits several operations.
func transact(c *client, known map[string]state, timeout time.Duration) {
	var ops []storage.Op
	var parts []part
	for _, key := range c.pickKeys(1 + c.random.IntN(min(4, len(c.round.keys)))) {
		if c.random.IntN(4) > 0 && !readKnown(c, known, key, c.random.IntN(2) == 0, timeout) {
			return
		}
		given := known[key]
		switch chance := c.random.IntN(10); {
		case chance < 2:
			ops = append(ops, storage.Op{Check: idOf(c.round.namespace, key, given.uid), Version: given.version})
			parts = append(parts, part{verb: demand, key: key, expectedState: given})
		case chance < 4 && given.uid != "":
			taken := c.random.IntN(2) == 0
			ops = append(ops, storage.Op{Delete: idOf(c.round.namespace, key, given.uid), Version: given.version, Present: taken})
			parts = append(parts, part{verb: remove, key: key, expectedState: given, mustExist: taken})
		default:
			res, p := c.resource(key, given, c.random.IntN(2000))
			ops, parts = append(ops, storage.Op{Write: res}), append(parts, p)
		}
	}
	if c.commit(ops, parts, timeout) != nil {
		return
	}
	for _, p := range parts {
		switch p.verb {
		case write:
			delete(known, p.key) // the next read returns it
		case remove:
			known[p.key] = state{}
		}
	}
}

// finish writes to every key once more, so that followers can recognize the end.
func finish(c *client, until time.Duration) error {
	for _, key := range c.round.keys {
		for {
			given, ok := c.read(key, true, longTimeout)
			if ok {
				if _, err := c.write(key, given, 0, true, longTimeout); err == nil {
					break
				}
			}
			if c.round.run.now() > until {
				return errors.New("the store takes no writes although all faults are healed")
			}
		}
	}
	return nil
}
