package faults

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// checkPorcupine checks each key a second time, with the independent checker porcupine. It searches for an order of the calls that
// explains their answers. The cost grows with the number of calls, so the history of a key is split into windows where no call is in
// progress.
func checkPorcupine(e *evidence) (found []Violation) {
	deadline := e.run.now() + searchTime
	for _, key := range e.round.keys {
		for _, window := range splitAtIdle(operationsOn(e, key)) {
			start := stateAt(e.keyHistories[key], e, time.Duration(window[0].Call))
			model := keyModel(start)
			if deadline <= e.run.now() {
				e.run.report.UndecidedWindows++
				continue
			}
			switch porcupine.CheckOperationsTimeout(model, window, deadline-e.run.now()) {
			case porcupine.Illegal:
				_, info := porcupine.CheckOperationsVerbose(model, window, searchTime)
				e.pictures = append(e.pictures, picture{key, model, info})
				found = append(found, Violation{"linearizable (porcupine)", fmt.Sprintf("no order of the %d calls of %s from %s to %s explains their answers; the state before was %s",
					len(window), shortKey(key), formatTime(time.Duration(window[0].Call)), formatTime(time.Duration(window[len(window)-1].Return)), start)})
			case porcupine.Unknown:
				e.run.report.UndecidedWindows++
			}
		}
	}
	return found
}

const (
	searchTime     = 2 * time.Minute // the maximum for all windows of a round together
	minWindowCalls = 100
)

// keyOperation is the part of a call that concerns one key.
type keyOperation struct {
	call    *call
	part    part
	version string // of a write: the version after it, also if the caller got no answer
}

// outcome formats the outcome of the call.
func (o keyOperation) outcome() string {
	switch o.call.outcome {
	case outcomeDone:
		return "done"
	case outcomeRefused:
		return fmt.Sprintf("refused: %v", o.part.refusalCause)
	}
	return "outcome unknown"
}

// operationsOn returns the calls on a key that a linearizable order must explain. It omits eventual reads, refused calls with another
// cause, and unanswered calls that had no visible effect.
func operationsOn(e *evidence, key string) (ops []porcupine.Operation) {
	written := e.writtenVersions()
	for _, k := range e.calls {
		if k.reads() && (!k.strong || k.outcome != outcomeDone) {
			continue
		}
		for _, p := range k.parts {
			if p.key != key || k.outcome == outcomeRefused && p.refusalCause == nil {
				continue
			}
			in := keyOperation{k, p, written[p.name]}
			if k.outcome == outcomeUnknown && (p.verb == demand || p.verb == write && in.version == "" || p.verb == remove && e.keyHistories[key].deletionsOf[p.expectedState] == 0) {
				continue // it had no effect, or an effect that cannot be observed
			}
			end := k.end
			if at, ok := e.latest[k]; ok {
				end = min(end, at)
			}
			ops = append(ops, porcupine.Operation{Input: in, Call: int64(k.begin), Output: p, Return: int64(end)})
		}
	}
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	assignRows(ops)
	return ops
}

// assignRows gives each call the first row of the picture that is free at its time.
func assignRows(ops []porcupine.Operation) {
	var busyUntil []int64 // by row
	for i := range ops {
		row := slices.IndexFunc(busyUntil, func(at int64) bool { return at < ops[i].Call })
		if row < 0 {
			row, busyUntil = len(busyUntil), append(busyUntil, 0)
		}
		busyUntil[row], ops[i].ClientId = ops[i].Return, row
	}
}

// splitAtIdle splits a history where no call is in progress.
func splitAtIdle(ops []porcupine.Operation) (windows [][]porcupine.Operation) {
	var last int64
	begin := 0
	for i, op := range ops {
		if i-begin >= minWindowCalls && op.Call > last {
			windows = append(windows, ops[begin:i])
			begin = i
		}
		last = max(last, op.Return)
	}
	if begin < len(ops) {
		windows = append(windows, ops[begin:])
	}
	return windows
}

// stateAt returns the state of a key at a time without calls in progress.
func stateAt(c *keyHistory, e *evidence, at time.Duration) state {
	position := 0
	for i, step := range c.steps {
		begin := forever
		if k := e.writes[step.name]; k != nil && !step.isDelete {
			begin = k.begin
		}
		if step.isDelete {
			for _, k := range c.removers[step.now] {
				begin = min(begin, k.begin)
			}
		}
		if begin < at {
			position = i + 1
		}
	}
	return c.at(position)
}

// keyModel returns the decision tables as a sequential model of one key.
func keyModel(start state) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return start },
		Step: func(at, input, _ any) (bool, any) {
			return keyStep(at.(state), input.(keyOperation))
		},
		DescribeOperation: func(input, _ any) string {
			in := input.(keyOperation)
			return fmt.Sprintf("%s, %s: %s: %s", in.call.client, in.call.kind, in.part, in.outcome())
		},
		DescribeState: func(at any) string { return at.(state).String() },
	}
}

func keyStep(at state, in keyOperation) (bool, state) {
	p := in.part
	if p.verb == read {
		return at == p.observedState, at
	}
	refusal := p.refusal(at)
	switch {
	case in.call.outcome == outcomeRefused:
		return errors.Is(refusal, p.refusalCause), at
	case p.verb == remove && in.call.outcome == outcomeUnknown:
		if at == p.expectedState {
			at = state{}
		}
		return true, at // another unanswered deletion may have removed the state instead
	case refusal != nil:
		return false, at
	case p.verb == write:
		return true, state{p.expectedState.uid, in.version}
	case p.verb == remove && at.uid == p.expectedState.uid:
		return true, state{}
	}
	return true, at
}
