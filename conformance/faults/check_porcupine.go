package faults

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// checkPorcupine is a second opinion on each key: a search for an order of its calls that explains what they were told. What it
// costs grows with the number of calls that it gets, so a key's history is split where no call was under way.
func checkPorcupine(e *evidence) (found []Violation) {
	until := e.run.now() + searchFor
	for _, key := range e.round.keys {
		for _, piece := range split(operationsOn(e, key)) {
			start := atRest(e.chains[key], e, time.Duration(piece[0].Call))
			model := keyModel(start)
			if until <= e.run.now() {
				e.run.report.Undecided++
				continue
			}
			switch porcupine.CheckOperationsTimeout(model, piece, until-e.run.now()) {
			case porcupine.Illegal:
				_, info := porcupine.CheckOperationsVerbose(model, piece, searchFor)
				e.pictures = append(e.pictures, picture{key, model, info})
				found = append(found, Violation{"linearizable (porcupine)", fmt.Sprintf("no order of %d calls of %s explains them, from %s to %s, %s being there before",
					len(piece), short(key), moment(time.Duration(piece[0].Call)), moment(time.Duration(piece[len(piece)-1].Return)), start)})
			case porcupine.Unknown:
				e.run.report.Undecided++
			}
		}
	}
	return found
}

const (
	searchFor = 10 * time.Second // in all pieces of a round
	atLeast   = 100              // calls in a piece
)

// onKey is a call as far as one key is concerned.
type onKey struct {
	call    *call
	part    part
	version string // of a write: what it left, also where its caller was not told
}

// outcome is what the caller was told, in words.
func (o onKey) outcome() string {
	switch o.call.fate {
	case done:
		return "done"
	case refused:
		return fmt.Sprintf("refused: %v", o.part.cause)
	}
	return "outcome unknown"
}

// operations are the calls on a key that say or do something at one moment.
func operationsOn(e *evidence, key string) (ops []porcupine.Operation) {
	written := e.written()
	for _, k := range e.calls {
		if k.reads() && (!k.strong || k.fate != done) {
			continue
		}
		for _, p := range k.parts {
			if p.key != key || k.fate == refused && p.cause == nil {
				continue
			}
			in := onKey{k, p, written[p.name]}
			if k.fate == unknown && (p.verb == demand || p.verb == write && in.version == "" || p.verb == remove && e.chains[key].removed[p.given] == 0) {
				continue // it has not happened, or left nothing to look at
			}
			end := k.end
			if at, ok := e.latest[k]; ok {
				end = min(end, at)
			}
			ops = append(ops, porcupine.Operation{Input: in, Call: int64(k.begin), Output: p, Return: int64(end)})
		}
	}
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	rows(ops)
	return ops
}

// rows gives each call the first row of the picture that is free at its time.
func rows(ops []porcupine.Operation) {
	var free []int64 // from when on each is
	for i := range ops {
		row := slices.IndexFunc(free, func(at int64) bool { return at < ops[i].Call })
		if row < 0 {
			row, free = len(free), append(free, 0)
		}
		free[row], ops[i].ClientId = ops[i].Return, row
	}
}

// split cuts a history where nothing is under way.
func split(ops []porcupine.Operation) (pieces [][]porcupine.Operation) {
	var last int64
	begin := 0
	for i, op := range ops {
		if i-begin >= atLeast && op.Call > last {
			pieces = append(pieces, ops[begin:i])
			begin = i
		}
		last = max(last, op.Return)
	}
	if begin < len(ops) {
		pieces = append(pieces, ops[begin:])
	}
	return pieces
}

// atRest is what is stored at a moment at which no call is under way.
func atRest(c *chain, e *evidence, at time.Duration) state {
	position := 0
	for i, step := range c.steps {
		begin := forever
		if k := e.writes[step.name]; k != nil && !step.deleted {
			begin = k.begin
		}
		if step.deleted {
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

// keyModel is the decision tables as a sequential store of one key.
func keyModel(start state) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return start },
		Step: func(at, input, _ any) (bool, any) {
			return keyStep(at.(state), input.(onKey))
		},
		DescribeOperation: func(input, _ any) string {
			in := input.(onKey)
			return fmt.Sprintf("%s, %s: %s: %s", in.call.client, in.call.kind, in.part, in.outcome())
		},
		DescribeState: func(at any) string { return at.(state).String() },
	}
}

func keyStep(at state, in onKey) (bool, state) {
	p := in.part
	if p.verb == read {
		return at == p.got, at
	}
	refusal := p.refusal(at)
	switch {
	case in.call.fate == refused:
		return errors.Is(refusal, p.cause), at
	case p.verb == remove && in.call.fate == unknown:
		if at == p.given {
			at = state{}
		}
		return true, at // one of several may have done it
	case refusal != nil:
		return false, at
	case p.verb == write:
		return true, state{p.given.uid, in.version}
	case p.verb == remove && at.uid == p.given.uid:
		return true, state{}
	}
	return true, at
}
