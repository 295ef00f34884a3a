package conformance

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var historyCases = topic{"Histories", []testCase{
	{name: "Model", run: historiesModel},
}}

// historiesModel plays random histories against a model that is a map. Each history has a partition of its own, so that all of
// them may use one store. When one goes wrong, rapid shortens it to the fewest steps that do.
func historiesModel(s *suite) {
	limit, passed, failed := max(6, s.scale(60)), 0, false
	rapid.Check(s.TB, func(t *rapid.T) {
		// Rapid's own number of histories is one for the whole program, so the limit is kept here. Histories that shrink a
		// failure are not counted.
		if passed >= limit && !failed {
			return
		}
		m := &model{suite: s, partition: "history-" + newUid(), resources: make(map[string]*resourcepb.Resource)}
		ended := false
		defer func() {
			if ended {
				passed++
			} else {
				failed = true
			}
		}()
		m.play(t)
		ended = true
	})
}

// A model is the expected content of one partition. It fails through rapid's T, never through the suite's.
type model struct {
	*suite
	partition string
	resources map[string]*resourcepb.Resource // by name
	versions  []*resourcepb.Resource          // every version there was, for stale calls
	events    []*resourcepb.WatchEvent        // the expected events of watches from the beginning
	watches   []*modelWatch
}

type modelWatch struct {
	storage.Watch
	from int // the first of events that it shows
}

func (m *model) tenancy() *resourcepb.Tenancy {
	return &resourcepb.Tenancy{Partition: m.partition, Namespace: storage.Wildcard}
}

func (m *model) play(t *rapid.T) {
	defer func() {
		for _, w := range m.watches {
			w.Close()
		}
	}()
	m.openWatch(t)
	for range rapid.IntRange(1, 24).Draw(t, "steps") {
		switch rapid.SampledFrom([]string{"write", "write", "write", "delete", "delete", "read", "list", "watch", "resume", "commit"}).Draw(t, "step") {
		case "write":
			m.apply(t, m.write(t))
		case "delete":
			m.apply(t, m.remove(t))
		case "commit":
			m.commitSome(t)
		case "read":
			m.readOne(t)
		case "list":
			m.listAll(t)
		case "watch":
			m.openWatch(t)
		case "resume":
			m.reopenWatch(t)
		}
	}
	m.listAll(t)
	for _, want := range m.sortedResources() {
		if got, err := m.b.Read(m.ctx, strong, want.Id); err != nil || !proto.Equal(got, want) {
			t.Fatalf("Read: got %s, error %v, want %s", shortText(got), quoteError(err), shortText(want))
		}
	}
	m.checkOwners(t)
	for i, w := range m.watches {
		m.checkEvents(t, fmt.Sprintf("watch %d", i), w)
	}
}

// id draws one of few keys.
func (m *model) id(t *rapid.T) *resourcepb.ID {
	id := thingID(rapid.SampledFrom([]string{"a", "ab", "b", "B", "a/b"}).Draw(t, "name"))
	id.Tenancy.Partition = m.partition
	id.Type.GroupVersion = rapid.SampledFrom([]string{"v1", "v1", "v2"}).Draw(t, "group version")
	return id
}

// drawVersion draws the uid and version of a call: usually the stored ones, sometimes earlier ones.
func (m *model) drawVersion(t *rapid.T, id *resourcepb.ID) (uid, version string) {
	now := m.resources[id.Name]
	switch aim := rapid.SampledFrom([]string{"right", "right", "right", "past", "new", "mixed"}).Draw(t, "aim"); {
	case aim == "past" && len(m.versions) > 0:
		res := rapid.SampledFrom(m.versions).Draw(t, "past")
		return res.Id.Uid, res.Version
	case aim == "mixed" && now != nil:
		return now.Id.Uid, "not-" + now.Version
	case aim == "right" && now != nil:
		return now.Id.Uid, now.Version
	}
	return newUid(), ""
}

func (m *model) write(t *rapid.T) storage.Op {
	res := newResource(m.id(t))
	res.Id.Uid, res.Version = m.drawVersion(t, res.Id)
	if owner := rapid.SampledFrom([]string{"", "", "o1", "o2"}).Draw(t, "owner"); owner != "" {
		res.Owner = m.owner(owner)
	}
	res.Data = payload(rapid.StringN(0, 8, -1).Draw(t, "payload"))
	return storage.Op{Write: res}
}

func (m *model) owner(name string) *resourcepb.ID {
	id := withUid(thingID(name), "uid-of-"+name)
	id.Tenancy.Partition = m.partition
	return id
}

func (m *model) remove(t *rapid.T) storage.Op {
	id := m.id(t)
	uid, version := m.drawVersion(t, id)
	return storage.Op{Delete: withUid(id, uid), Version: version}
}

// expected is the decision tables.
func (m *model) expected(op storage.Op) error {
	id, version := op.Delete, op.Version
	if op.Write != nil {
		id, version = op.Write.Id, op.Write.Version
	}
	now := m.resources[id.Name]
	switch {
	case now == nil && (op.Delete != nil || version == ""):
		return nil
	case now == nil:
		return storage.ErrCASFailure
	case now.Id.Uid != id.Uid && op.Delete != nil:
		return nil
	case now.Id.Uid != id.Uid:
		return storage.ErrWrongUid
	case now.Version != version:
		return storage.ErrCASFailure
	}
	return nil
}

// updateModel brings the model up to date with an operation that succeeded.
func (m *model) updateModel(t *rapid.T, op storage.Op, result *resourcepb.Resource) {
	if op.Delete != nil {
		if now := m.resources[op.Delete.Name]; now != nil && now.Id.Uid == op.Delete.Uid {
			m.events = append(m.events, deleteEvent(now))
			delete(m.resources, op.Delete.Name)
		}
		return
	}
	want := clone(op.Write)
	want.Version = result.GetVersion()
	if !proto.Equal(result, want) {
		t.Fatalf("a write returned\n%s\nwant\n%s", shortText(result), shortText(want))
	}
	for _, earlier := range m.versions {
		if earlier.Version == want.Version && keyOf(earlier.Id) == keyOf(want.Id) {
			t.Fatalf("version %q came a second time", want.Version)
		}
	}
	m.resources[want.Id.Name] = want
	m.versions = append(m.versions, want)
	m.events = append(m.events, upsertEvent(want))
}

func (m *model) apply(t *rapid.T, op storage.Op) {
	var result *resourcepb.Resource
	var err error
	if op.Write != nil {
		result, err = m.b.WriteCAS(m.ctx, op.Write)
	} else {
		err = m.b.DeleteCAS(m.ctx, op.Delete, op.Version)
	}
	if want := m.expected(op); !errors.Is(err, want) {
		t.Fatalf("%v at version %q: got error %v, want %v; stored are %v", op.Write.GetId(), op.Version, quoteError(err), quoteError(want), m.resources)
	}
	if err == nil {
		m.updateModel(t, op, result)
	}
}

func (m *model) commitSome(t *rapid.T) {
	transactor, ok := storage.As[storage.Transactor](m.b)
	if !ok {
		return
	}
	var ops []storage.Op
	names := make(map[string]bool)
	for range rapid.IntRange(0, 4).Draw(t, "operations") {
		op := m.write(t)
		if rapid.Bool().Draw(t, "delete") {
			op = m.remove(t)
		}
		if name := op.Write.GetId().GetName() + op.Delete.GetName(); !names[name] {
			names[name] = true
			ops = append(ops, op)
		}
	}
	wantIndex := slices.IndexFunc(ops, func(op storage.Op) bool { return m.expected(op) != nil })
	results, err := transactor.Commit(m.ctx, ops)
	if wantIndex >= 0 {
		var op *storage.OpError
		if !errors.As(err, &op) || op.Index != wantIndex || !errors.Is(err, m.expected(ops[wantIndex])) {
			t.Fatalf("Commit: got error %v, want %v of operation %d", quoteError(err), m.expected(ops[wantIndex]), wantIndex)
		}
		return
	}
	if err != nil || len(results) != len(ops) {
		t.Fatalf("Commit: %d results for %d operations, error %v", len(results), len(ops), quoteError(err))
	}
	for i, op := range ops {
		m.updateModel(t, op, results[i])
	}
}

func (m *model) readOne(t *rapid.T) {
	id := m.id(t)
	id.Uid = ""
	got, err := m.b.Read(m.ctx, strong, id)
	now := m.resources[id.Name]
	var mismatch storage.GroupVersionMismatchError
	switch {
	case now == nil:
		if !errors.Is(err, storage.ErrNotFound) {
			t.Fatalf("Read of nothing: got error %v, want ErrNotFound", quoteError(err))
		}
	case now.Id.Type.GroupVersion != id.Type.GroupVersion:
		if !errors.As(err, &mismatch) || !proto.Equal(mismatch.Stored, now) {
			t.Fatalf("Read: got error %v, want a GroupVersionMismatchError", quoteError(err))
		}
	case err != nil || !proto.Equal(got, now):
		t.Fatalf("Read: got %s, error %v, want %s", shortText(got), quoteError(err), shortText(now))
	}
}

// sortedResources returns the resources of the model in list order.
func (m *model) sortedResources() []*resourcepb.Resource {
	all := slices.Collect(maps.Values(m.resources))
	inOrder(all)
	return all
}

func (m *model) listAll(t *rapid.T) {
	got, err := m.b.List(m.ctx, strong, things, m.tenancy(), "")
	if err == nil {
		err = compareLists(got, m.sortedResources())
	}
	if err != nil {
		t.Fatalf("List: %v", err)
	}
}

func (m *model) openWatch(t *rapid.T) {
	w, err := m.b.WatchList(m.ctx, things, m.tenancy(), "")
	if err != nil {
		t.Fatalf("WatchList: %v", err)
	}
	opened := &modelWatch{w, len(m.events)}
	m.watches = append(m.watches, opened)
	var snapshot []*resourcepb.Resource
	for {
		ev, err := m.nextOrError(w)
		if err != nil {
			t.Fatalf("the snapshot of a watch: %v", err)
		}
		if ev.GetEndOfSnapshot() != nil {
			break
		}
		snapshot = append(snapshot, ev.GetUpsert().GetResource())
	}
	if err := compareLists(snapshot, m.sortedResources()); err != nil {
		t.Fatalf("the snapshot of a watch: %v", err)
	}
}

// reopenWatch reads a watch to its end and opens another from its cursor.
func (m *model) reopenWatch(t *rapid.T) {
	resumer, ok := storage.As[storage.Resumer](m.b)
	if !ok {
		return
	}
	i := rapid.IntRange(0, len(m.watches)-1).Draw(t, "watch")
	old := m.watches[i]
	if rapid.Bool().Draw(t, "read first") {
		m.checkEvents(t, "a watch", old)
		old.from = len(m.events)
	}
	w, err := resumer.WatchFrom(m.ctx, things, m.tenancy(), "", old.Cursor())
	if err != nil {
		t.Fatalf("WatchFrom: %v", err)
	}
	old.Close()
	m.watches[i] = &modelWatch{w, old.from}
}

// checkEvents reads the outstanding events of a watch, in order for each key.
func (m *model) checkEvents(t *rapid.T, what string, w *modelWatch) {
	left := make(map[string][]*resourcepb.WatchEvent)
	for _, ev := range m.events[w.from:] {
		key := keyOf(subject(ev).Id)
		left[key] = append(left[key], ev)
	}
	for len(left) > 0 {
		got, err := m.nextOrError(w)
		if err != nil {
			t.Fatalf("%s, which still owes events of %d keys: %v", what, len(left), err)
		}
		if subject(got) == nil {
			t.Fatalf("%s: %s in the middle of the changes", what, shortText(got))
		}
		key := keyOf(subject(got).Id)
		for m.h.MergesEvents != "" && len(left[key]) > 1 && !proto.Equal(left[key][0], got) {
			left[key] = left[key][1:]
		}
		if len(left[key]) == 0 || !proto.Equal(left[key][0], got) {
			t.Fatalf("%s: got %s, want one of %v", what, shortText(got), left)
		}
		if left[key] = left[key][1:]; len(left[key]) == 0 {
			delete(left, key)
		}
	}
}

func (m *model) checkOwners(t *rapid.T) {
	for _, name := range []string{"o1", "o2"} {
		var want []*resourcepb.ID
		for _, res := range m.sortedResources() {
			if res.GetOwner().GetName() == name {
				want = append(want, res.Id)
			}
		}
		// Every watch of this handle may still be behind, so these references may be, too.
		err := m.poll(func() error {
			got, err := m.b.OwnerReferences(m.ctx, m.owner(name))
			if err != nil {
				return err
			}
			return compareIDs(got, want)
		})
		if err != nil {
			t.Fatalf("OwnerReferences of %s: %v", name, err)
		}
	}
}
