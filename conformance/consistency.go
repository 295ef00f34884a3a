package conformance

import (
	"errors"
	"strconv"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var consistencyCases = topic{"Consistency", []testCase{
	{name: "NeverOlderThanEvents", run: consistencyEvents},
	{name: "NeverOlderThanEventsOfSecondHandle", needs: needAnother, run: consistencyEventsSecond},
}}

// counter reads the generation of a resource, which counts its writes; -1 if there is none.
func counter(res *resourcepb.Resource, err error) (int, error) {
	if errors.Is(err, storage.ErrNotFound) {
		return -1, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(res.Generation)
}

func only(resources []*resourcepb.Resource, err error) (*resourcepb.Resource, error) {
	if err == nil && len(resources) == 0 {
		err = storage.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return resources[0], nil
}

// readersOf returns every kind of read of the resource called "counter" through b.
func readersOf(s *suite, b storage.Backend, id *resourcepb.ID) []func() (int, error) {
	id = withUid(id, "")
	looks := []func() (int, error){
		func() (int, error) { return counter(b.Read(s.ctx, eventual, id)) },
		func() (int, error) { return counter(only(b.List(s.ctx, eventual, things, home, "counter"))) },
		func() (int, error) { return counter(only(b.List(s.ctx, eventual, anything, anywhere, ""))) },
		func() (int, error) { return counter(b.Read(s.ctx, strong, id)) },
		func() (int, error) { return counter(only(b.List(s.ctx, strong, things, home, ""))) },
	}
	if pager, ok := storage.As[storage.Pager](b); ok {
		looks = append(looks, func() (int, error) {
			page, err := pager.ListPage(s.ctx, things, home, "counter", storage.ListOptions{Consistency: eventual})
			if err == nil && page.Continue != "" && len(page.Resources) == 0 {
				return counter(b.Read(s.ctx, eventual, id)) // an empty page says nothing
			}
			return counter(only(page.Resources, err))
		})
	}
	return looks
}

func consistencyEvents(s *suite) { notOlderThanEvents(s, s.b) }

func consistencyEventsSecond(s *suite) { notOlderThanEvents(s, s.another()) }

// notOlderThanEvents reads through b as soon as a watch of b has shown a change. Every kind of read must return it.
func notOlderThanEvents(s *suite, b storage.Backend) {
	s.Helper()
	w, err := b.WatchList(s.ctx, things, home, "")
	s.mustOpen(w, err)
	s.snapshot(w)
	owner := thingID("owner")
	for i := range s.scale(24) {
		res := newChild("counter", owner)
		res.Generation = strconv.Itoa(2 * i)
		res = s.write(res)
		s.expectUpsert(w, res)
		looks := readersOf(s, b, res.Id)
		look := func(want int) {
			s.Helper()
			// The kinds of read take turns in coming first, so that no read profits from an earlier read.
			for n := range looks {
				got, err := looks[(i+n)%len(looks)]()
				s.noError("reading after an event", err)
				if got != want {
					s.Fatalf("stale read %d: write %d after the event of write %d", (i+n)%len(looks), got, want)
				}
			}
		}
		if i%2 == 0 {
			look(2 * i)
		}
		refs, err := b.OwnerReferences(s.ctx, owner)
		s.noError("OwnerReferences after an event", err)
		s.noError("OwnerReferences after an event", compareIDs(refs, []*resourcepb.ID{res.Id}))

		next := withNewData(res)
		next.Generation = strconv.Itoa(2*i + 1)
		next.Owner = nil
		res = s.write(next)
		s.expectUpsert(w, res)
		refs, err = b.OwnerReferences(s.ctx, owner)
		s.noError("OwnerReferences after an event", err)
		s.noError("OwnerReferences after an event", compareIDs(refs, nil))
		look(2*i + 1)
		s.delete(res)
		s.expectDelete(w, res)
		look(-1)
	}
}
