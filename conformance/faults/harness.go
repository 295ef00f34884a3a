package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ashlar-dev/storage"
)

// Harness describes a new, empty store and the faults of its database.
type Harness struct {
	// Open opens a handle on the store over the connection that the faults disturb.
	Open func(ctx context.Context) (storage.Backend, error)

	// Around opens a handle that the faults of the connection do not disturb. It is nil if there is no such connection.
	Around func(ctx context.Context) (storage.Backend, error)

	// Faults are the faults that can be injected.
	Faults []Fault

	// Exempt contains the reason for each kind of fault that Faults lacks. A kind without a fault and without a reason is an error.
	Exempt map[Kind]string

	// MaxSize is the largest resource in bytes; 0 means 1 MiB.
	MaxSize int

	// NoBookmarker, NoCommitBounds, ListIsNoSnapshot and NoOrderAcrossKeys are exemptions as in conformance.Harness.
	NoBookmarker      string
	NoCommitBounds    string
	ListIsNoSnapshot  string
	NoOrderAcrossKeys string

	// NoHistorian is the reason why the backend is no history.Historian, as in conformance.Harness. It is an error if a handle is
	// none and the reason is empty, or if a handle is one and there is a reason. Handles of [Processes] are not checked.
	NoHistorian string

	// NoResumer is the reason why the backend is no storage.Resumer, as in conformance.Harness. Followers then keep their watches.
	NoResumer string

	// IgnoreGoroutines are functions, by their full names, whose goroutines may remain after Close because they belong to the
	// harness and not to the backend.
	IgnoreGoroutines []string
}

// Kind is a kind of fault.
type Kind string

// The kinds of faults. A harness has a Fault or an exemption for each. It may have faults of other kinds, too.
const (
	Cut          Kind = "cut"           // connections break
	Delay        Kind = "delay"         // connections transmit nothing for a while
	Throttle     Kind = "throttle"      // connections are slow
	LoseAnswer   Kind = "lose answer"   // a request is carried out and its answer is lost
	Pause        Kind = "pause"         // the server stops for a while without closing connections
	KillServer   Kind = "kill server"   // the server dies without a chance to write anything
	CrashSession Kind = "crash session" // one of the server's processes dies
	Restart      Kind = "restart"       // the server stops and starts in an orderly way
	StallDisk    Kind = "stall disk"    // the disk takes its time
	FillDisk     Kind = "fill disk"     // the disk is full for a while
	StandbyAway  Kind = "standby away"  // the synchronous standby does not answer
	QuorumAway   Kind = "quorum away"   // too few members are there to decide
	ChangeLeader Kind = "change leader" // another member becomes the leader
	SkewClock    Kind = "skew clock"    // the clocks of client and server differ
	KillClient   Kind = "kill client"   // a process that uses the store dies
	FreezeClient Kind = "freeze client" // a process that uses the store stops for a while
	Compact      Kind = "compact"       // the database forgets its history
)

// Kinds returns all kinds of faults.
func Kinds() []Kind {
	return []Kind{
		Cut, Delay, Throttle, LoseAnswer, Pause, KillServer, CrashSession, Restart, StallDisk, FillDisk, StandbyAway, QuorumAway,
		ChangeLeader, SkewClock, KillClient, FreezeClient, Compact,
	}
}

// Fault is a fault of the database that a run can inject.
type Fault struct {
	// Kind is the kind of the fault.
	Kind Kind

	// Weight is the relative frequency of the fault; 0 means 1.
	Weight int

	// Touches names the target of the fault ("server", "link 1"). Faults with the same target are never injected at the same
	// time. If it is empty, the kind is the target.
	Touches string

	// Hold is the maximum time before the fault is healed; 0 is a second.
	Hold time.Duration

	// Inject causes the fault. heal ends it; it is nil if the fault has ended by itself. The random source belongs to the call. The
	// context ends when the run is abandoned.
	Inject func(ctx context.Context, random *rand.Rand) (heal func(ctx context.Context) error, err error)
}

// complete sets defaults and rejects a harness without a fault or an exemption for some kind.
func (h *Harness) complete() error {
	if h.Open == nil {
		return errors.New("faults: Harness.Open is not set")
	}
	if h.Around == nil {
		h.Around = h.Open
	}
	if h.MaxSize == 0 {
		h.MaxSize = 1 << 20
	}
	offered := make(map[Kind]bool)
	for _, f := range h.Faults {
		if f.Kind == "" || f.Inject == nil {
			return fmt.Errorf("faults: a fault of kind %q: Kind and Inject must be set", f.Kind)
		}
		offered[f.Kind] = true
	}
	var problems []error
	for _, kind := range Kinds() {
		switch reason := h.Exempt[kind]; {
		case !offered[kind] && reason == "":
			problems = append(problems, fmt.Errorf("faults: the harness has no fault of kind %q and Harness.Exempt does not say why", kind))
		case offered[kind] && reason != "":
			problems = append(problems, fmt.Errorf("faults: the harness has a fault of kind %q although Harness.Exempt says: %s", kind, reason))
		}
	}
	for kind := range h.Exempt {
		if !slices.Contains(Kinds(), kind) {
			problems = append(problems, fmt.Errorf("faults: Harness.Exempt names %q, which is no kind of fault", kind))
		}
	}
	return errors.Join(problems...)
}

// offers reports whether the harness can inject a kind of fault.
func (h *Harness) offers(kind Kind) bool {
	return slices.ContainsFunc(h.Faults, func(f Fault) bool { return f.Kind == kind })
}
