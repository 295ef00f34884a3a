package conformance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var linearizableCases = topic{"Linearizable", []testCase{
	{name: "OneHandle", run: func(s *suite) { checkLinearizable(s, s.handles(1)) }},
	{name: "SeveralHandles", needs: needAnother, run: func(s *suite) { checkLinearizable(s, s.handles(3)) }},
}}

// A linInput is a call on one key: a strong read, or a write or delete of uid at version.
type linInput struct {
	call, key, uid, version string
}

// A linOutput is its answer. For a read uid and version are those stored, empty if nothing is; for a write that succeeded
// they are what it left there.
type linOutput struct {
	uid, version string
	err          error // nil or a sentinel
}

// linState is what is stored under a key; the zero value is nothing.
type linState struct{ uid, version string }

// linStep is the decision tables as a step of a sequential store.
func linStep(state linState, in linInput, out linOutput) (bool, linState) {
	switch in.call {
	case "read":
		return state == linState{out.uid, out.version}, state
	case "delete":
		switch {
		case state.uid != in.uid:
			return out.err == nil, state
		case state.version != in.version:
			return out.err == storage.ErrCASFailure, state
		}
		return out.err == nil, linState{}
	}
	switch {
	case state == linState{} && in.version != "":
		return out.err == storage.ErrCASFailure, state
	case state != linState{} && state.uid != in.uid:
		return out.err == storage.ErrWrongUid, state
	case state.version != in.version:
		return out.err == storage.ErrCASFailure, state
	}
	return out.err == nil, linState{in.uid, out.version}
}

var linModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := make(map[string][]porcupine.Operation)
		for _, op := range history {
			key := op.Input.(linInput).key
			byKey[key] = append(byKey[key], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return linState{} },
	Step: func(state, input, output any) (bool, any) {
		return linStep(state.(linState), input.(linInput), output.(linOutput))
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

// linearizable has several goroutines read, write and delete few keys at once, and lets a checker look for an order of these
// calls, each between its start and its end, in which a sequential store would have given the same answers.
func checkLinearizable(s *suite, handles []storage.Backend) {
	s.Helper()
	var mu sync.Mutex
	var history []porcupine.Operation
	began := time.Now()
	s.parallel(5, func(worker int) error {
		random := rand.New(rand.NewPCG(uint64(worker), 2))
		b := handles[worker%len(handles)]
		last := make(map[string]linState) // by key: what this goroutine has seen last
		for range s.scale(40) {
			in := linInput{call: []string{"read", "read", "write", "write", "write", "delete"}[random.IntN(6)], key: fmt.Sprintf("key-%d", random.IntN(2))}
			in.uid, in.version = last[in.key].uid, last[in.key].version
			if in.call == "write" && (in.uid == "" || random.IntN(8) == 0) {
				in.uid, in.version = newUid(), ""
			}
			call := time.Since(began)
			out, err := callLin(s, b, in)
			if err != nil {
				return err
			}
			op := porcupine.Operation{ClientId: worker, Input: in, Call: int64(call), Output: out, Return: int64(time.Since(began))}
			mu.Lock()
			history = append(history, op)
			mu.Unlock()
			switch {
			case in.call == "read" || in.call == "write" && out.err == nil:
				last[in.key] = linState{out.uid, out.version}
			case in.call == "delete" && out.err == nil:
				last[in.key] = linState{}
			}
		}
		return nil
	})
	switch porcupine.CheckOperationsTimeout(linModel, history, s.h.Timeout) {
	case porcupine.Illegal:
		for _, op := range history {
			s.Logf("%d: [%d, %d] %s", op.ClientId, op.Call, op.Return, linModel.DescribeOperation(op.Input, op.Output))
		}
		s.Fatalf("the history of %d calls is not linearizable", len(history))
	case porcupine.Unknown:
		s.Logf("the checker did not come to an end with %d calls", len(history))
	}
}

func callLin(s *suite, b storage.Backend, in linInput) (linOutput, error) {
	id := withUid(thingID(in.key), in.uid)
	var res *resourcepb.Resource
	var err error
	switch in.call {
	case "read":
		res, err = b.Read(s.ctx, strong, withUid(id, ""))
		if errors.Is(err, storage.ErrNotFound) {
			return linOutput{}, nil
		}
	case "write":
		res = newResource(id)
		res.Version = in.version
		res, err = b.WriteCAS(s.ctx, res)
	case "delete":
		err = b.DeleteCAS(s.ctx, id, in.version)
	}
	for _, sentinel := range []error{storage.ErrCASFailure, storage.ErrWrongUid} {
		if errors.Is(err, sentinel) {
			return linOutput{err: sentinel}, nil
		}
	}
	return linOutput{uid: res.GetId().GetUid(), version: res.GetVersion()}, err
}
