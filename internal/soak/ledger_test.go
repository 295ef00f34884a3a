//go:build integration && soak

package soak

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ashlar-dev/storage"
)

// fate is what a client was told about an operation.
type fate int

const (
	unknown fate = iota // not told yet, or told that nobody knows
	done
	refused
)

// operation is one write or delete, with what its caller was told.
type operation struct {
	name    string
	key     string
	remove  bool
	fate    fate
	version string // of a write that is done
}

// ledger holds all operations.
type ledger struct {
	mu  sync.Mutex
	all map[string]*operation
}

func newLedger() *ledger { return &ledger{all: map[string]*operation{}} }

// begin notes an operation before it is sent.
func (l *ledger) begin(key string, remove bool) *operation {
	l.mu.Lock()
	defer l.mu.Unlock()
	op := &operation{name: fmt.Sprintf("op-%d", len(l.all)), key: key, remove: remove}
	l.all[op.name] = op
	return op
}

// told notes what the caller was told. It returns an error that nobody should be told.
func (l *ledger) told(op *operation, version string, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		op.fate, op.version = done, version
	case errors.Is(err, storage.ErrInconsistent):
	case errors.Is(err, storage.ErrCASFailure), errors.Is(err, storage.ErrWrongUid), errors.Is(err, context.DeadlineExceeded):
		op.fate = refused
	default:
		op.fate = refused
		return fmt.Errorf("%s: %w", op.key, err)
	}
	return nil
}

// count counts the operations of a fate.
func (l *ledger) count(f fate) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, op := range l.all {
		if op.fate == f {
			n++
		}
	}
	return n
}

// step is an event as a follower saw it: the operation that it shows, the version, and the one that was replaced.
type step struct {
	op, version, replaced string // op is "" for a deletion
}

func (s step) String() string {
	if s.op == "" {
		return "deletion of " + s.version
	}
	return fmt.Sprintf("%s: %q → %s", s.op, s.replaced, s.version)
}

// audit compares the steps of each key, as one follower saw them, with the ledger.
func (l *ledger) audit(steps map[string][]step) (faults []error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := map[string]bool{}
	for key, chain := range steps {
		at := ""
		for i, s := range chain {
			broken := s.op != "" && s.replaced != at || s.op == "" && s.version != at
			if broken {
				faults = append(faults, fmt.Errorf("%s: broken chain: %v", key, chain[max(0, i-3):i+1]))
			}
			at = s.version
			if s.op == "" {
				at = ""
				continue
			}
			switch op := l.all[s.op]; {
			case op == nil:
				faults = append(faults, fmt.Errorf("%s: nobody wrote %v", key, s))
			case seen[s.op]:
				faults = append(faults, fmt.Errorf("%s: seen twice: %v", key, s))
			case op.fate == refused:
				faults = append(faults, fmt.Errorf("%s: refused, and yet seen: %v", key, s))
			case op.fate == done && op.version != s.version:
				faults = append(faults, fmt.Errorf("%s: seen with another version than %s, which was returned: %v", key, op.version, s))
			}
			seen[s.op] = true
		}
	}
	for name, op := range l.all {
		if op.fate == done && !op.remove && !seen[name] {
			faults = append(faults, fmt.Errorf("%s: done, but not seen: %s, version %s", op.key, name, op.version))
		}
	}
	return faults
}
