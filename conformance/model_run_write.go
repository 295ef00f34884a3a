package conformance

import (
	"errors"
	"slices"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

func (m *modelRun) writeOne() {
	op := m.draw.write()
	m.note("%s", operationText(op))
	got, err := m.handle().WriteCAS(m.ctx, op.Write)
	m.checkOutcome(op, got, err)
}

func (m *modelRun) deleteOne() {
	op := m.draw.delete()
	m.note("%s", operationText(op))
	m.checkOutcome(op, nil, m.handle().DeleteCAS(m.ctx, op.Delete, op.Version))
}

func (m *modelRun) checkOutcome(op storage.Op, got *resourcepb.Resource, err error) {
	want := m.store.decide(op)
	switch {
	case !errors.Is(err, want) || want != nil && got != nil:
		failCheck("decision tables", "%s: got error %v, want %v; stored is %s", operationText(op), quoteError(err), quoteError(want),
			shortText(resourceOf(m.store.now[keyOf(operationID(op))])))
	case err != nil:
		m.checkList(m.handle(), allFilter, "refused changes do not happen")
	default:
		m.store.commit([]storage.Op{op}, []*resourcepb.Resource{got})
		m.number()
		m.checkKey(m.handle(), operationID(op))
	}
}

// checkKey demands that a strong read shows the last acknowledged change of a key.
func (m *modelRun) checkKey(h *modelHandle, id *resourcepb.ID) {
	now := resourceOf(m.store.now[keyOf(id)])
	id = withGroupVersion(withUid(id, ""), now.GetId().GetType().GetGroupVersion())
	if got, err := h.Read(m.ctx, strong, id); !readMatches(now, id, got, err) {
		failCheck("acknowledged changes stay", "Read of %s: got %s, error %v, stored is %s", idText(id), shortText(got), quoteError(err), shortText(now))
	}
}

func (m *modelRun) commitSome() {
	transactor, ok := storage.As[storage.Transactor](m.handle().Backend)
	if !ok {
		return
	}
	ops := m.draw.operations()
	m.note("a transaction:")
	for _, op := range ops {
		m.note("  %s", operationText(op))
	}
	results, err := transactor.Commit(m.ctx, ops)
	failing := slices.IndexFunc(ops, func(op storage.Op) bool { return m.store.decide(op) != nil })
	if failing >= 0 {
		want, opError := m.store.decide(ops[failing]), (*storage.OpError)(nil)
		if !errors.As(err, &opError) || opError.Index != failing || !errors.Is(opError.Err, want) || results != nil {
			failCheck("transactions are atomic", "Commit: got error %v, want %v of operation %d", quoteError(err), want, failing)
		}
		m.checkList(m.handle(), allFilter, "transactions are atomic")
		return
	}
	if err != nil || len(results) != len(ops) || len(ops) == 0 && results != nil {
		failCheck("transactions are atomic", "Commit: got %d results for %d operations, error %v", len(results), len(ops), quoteError(err))
	}
	for i, op := range ops {
		if (op.Write != nil) != (results[i] != nil) {
			failCheck("transactions are atomic", "Commit: result %d is %v", i, results[i])
		}
	}
	m.store.commit(ops, results)
	m.number()
}
