package migrate

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// The notes: every store that took part in a migration has an identity, a target has the state of its migration, and the note that
// guards the writes of the process at work.
const (
	identityNote  = "identity"
	migrationNote = "migration"
	guardNote     = "mover"
)

// state is the note in the target.
type state struct {
	Format int    `json:"format"`
	Source string `json:"source"` // the source's identity
	From   string `json:"from"`   // and its display name
	To     string `json:"to"`
	// The source's fence has this name: To, made unique. It is empty in notes of older programs, which used To.
	ClosedFor string `json:"closed_for,omitempty"`

	Run  string `json:"run"`  // the process at work
	Beat uint64 `json:"beat"` // rises with every write of the note

	Phase  Phase  `json:"phase"`
	Live   bool   `json:"live"`
	Into   Into   `json:"into"`
	Cursor string `json:"cursor,omitempty"` // everything before it has been applied

	StartTime  time.Time `json:"started"`
	UpdateTime time.Time `json:"updated"`
	Resources  int       `json:"resources,omitempty"` // at the end
	Digest     string    `json:"digest,omitempty"`
}

const stateFormat = 1

// closedFor returns the name in the source's fence for the migration.
func (s *state) closedFor() string { return cmp.Or(s.ClosedFor, s.To) }

// journal is the note with its revision.
type journal struct {
	store        driver.Mover
	targetGuards bool // whether the target compares a guard in each write
	try          retrier
	lease        time.Duration // how long a heartbeat allows writes to a target without guards

	writing  sync.Mutex // held during a write of the note
	renewing sync.Mutex // held while a writer renews the heartbeat

	mu              sync.Mutex
	state           state
	revision        string
	heartbeatSentAt time.Time // when the last accepted heartbeat was sent
	guard           string    // the revision of the guard's note
}

// readState returns the note of a store, or nil if there is none.
func readState(ctx context.Context, store driver.Mover) (*state, string, error) {
	value, revision, err := store.ReadNote(ctx, migrationNote)
	if err != nil || revision == "" {
		return nil, "", err
	}
	s := new(state)
	if err := json.Unmarshal(value, s); err != nil {
		return nil, "", fmt.Errorf("the target's journal is damaged: %w", err)
	}
	if s.Format != stateFormat {
		return nil, "", fmt.Errorf("%w: the target's journal has format %d, this program supports %d", storage.ErrNewerSchema, s.Format, stateFormat)
	}
	return s, revision, nil
}

// change changes the note. ErrSuperseded means that another process has changed the note.
func (j *journal) change(ctx context.Context, change func(*state)) error {
	if j == nil {
		return nil
	}
	j.writing.Lock()
	defer j.writing.Unlock()
	next := j.current()
	change(&next)
	next.Beat++
	next.UpdateTime = time.Now().UTC().Truncate(time.Millisecond)
	value, err := json.Marshal(&next)
	if err != nil {
		return err
	}
	err = j.try.do(ctx, "write the journal", func(ctx context.Context) error {
		sent := time.Now()
		revision, err := j.store.WriteNote(ctx, migrationNote, value, j.at())
		if errors.Is(err, storage.ErrCASFailure) {
			// It may be this process's own, from an attempt whose answer was lost.
			now, at, rerr := readState(ctx, j.store)
			if rerr != nil {
				return rerr
			}
			switch {
			case now == nil || now.Run != next.Run:
				return ErrSuperseded
			case now.Beat+1 < next.Beat:
				return errJournalLost
			}
			sent = time.Now()
			revision, err = j.store.WriteNote(ctx, migrationNote, value, at)
		}
		if err == nil {
			j.mu.Lock()
			j.state, j.revision, j.heartbeatSentAt = next, revision, sent
			j.mu.Unlock()
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("journal in the target: %w", err)
	}
	return nil
}

// confirm checks that the migration is still this process's.
func (j *journal) confirm(ctx context.Context) error { return j.change(ctx, func(*state) {}) }

// current returns the note as last written.
func (j *journal) current() state {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.state
}

// at returns the revision of the note as last written.
func (j *journal) at() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.revision
}

// identity returns the unique identity of a store. If the store has none, it creates one if create is set, and returns ""
// otherwise.
func identity(ctx context.Context, store driver.Mover, try retrier, create bool) (id string, err error) {
	err = try.do(ctx, "read the identity", func(ctx context.Context) error {
		value, revision, err := store.ReadNote(ctx, identityNote)
		if err != nil {
			return err
		}
		id = string(value)
		if revision != "" || !create {
			return nil
		}
		id = rand.Text()
		_, err = store.WriteNote(ctx, identityNote, []byte(id), "")
		if errors.Is(err, storage.ErrCASFailure) {
			// Another process was faster, or it is our own from an attempt whose answer was lost.
			value, _, err = store.ReadNote(ctx, identityNote)
			id = string(value)
		}
		return err
	})
	return id, err
}

// alive waits, and reports whether another process changed the note meanwhile.
func alive(ctx context.Context, store driver.Mover, revision string, wait time.Duration) (bool, error) {
	if wait <= 0 {
		return false, nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	_, now, err := store.ReadNote(ctx, migrationNote)
	return now != revision, err
}
