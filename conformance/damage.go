package conformance

import (
	"bytes"
	"errors"
	"slices"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/resourcepb"
)

const needDamage = needReplace | needPager | needResumer

// damageCases replace the stored bytes of one resource. Readers and watchers of its key get an error that names the key; readers
// and watchers of other keys are not affected.
var damageCases = topic{"Damage", []testCase{
	{name: "Garbage", needs: needDamage, run: func(s *suite) { checkDamage(s, []byte("\xff\xff\xff\xff")) }},
	{name: "Forms", needs: needDamage, run: damageForms},
}}

func damageThing(name string) *resourcepb.Resource {
	res := thingNamed(name)
	res.Data = payload("payload")
	return res
}

func encode(s *suite, res *resourcepb.Resource) []byte {
	s.Helper()
	return must[[]byte](s)(driver.Encode(res))
}

// damageForms replaces resources by bytes that are no resource for other reasons.
func damageForms(s *suite) {
	noUid := damageThing("damaged")
	noUid.Id.Uid, noUid.Data = "", nil
	for i, form := range []struct {
		name string
		data []byte
	}{
		{"no bytes", []byte{}},
		{"half a resource", encode(s, damageThing("damaged"))[:20]},
		{"another resource", encode(s, damageThing("stranger"))},
		{"no uid", encode(s, noUid)},
	} {
		if i > 0 {
			s.open()
		}
		s.Log("a resource is replaced by " + form.name)
		checkDamage(s, form.data)
	}
}

// checkDamage replaces the bytes of a resource, reads and watches it and its neighbours in every way, writes it again, and
// deletes it.
func checkDamage(s *suite, data []byte) {
	id := damageThing("damaged").Id
	for _, name := range []string{"above", "damaged", "zebra"} {
		s.write(damageThing(name))
	}
	all, others := watchAfterSnapshot(s, ""), watchAfterSnapshot(s, "z")
	cursor := all.Cursor()
	skipping := skipDamage(s, s.watch(anything, anywhere, ""))
	s.snapshot(skipping)
	s.h.Replace(s, s.url, id, data)
	last := s.write(damageThing("zebra-2"))

	endsByDamage(s, "an open watch", all)
	s.expectUpsert(others, last)
	endsByDamage(s, "a resumed watch", s.resume(cursor, filter{things, home, ""}))
	s.expectUpsert(s.resume(cursor, filter{things, home, "z"}), last)
	s.read(damageThing("above").Id)
	if got := s.list(things, home, "z"); len(got) != 2 {
		s.Errorf("List of the prefix z, without the damaged resource: got %d resources, want 2", len(got))
	}
	watchAfterSnapshot(s, "z").Close()
	if skipping, ok := skipping.(damageSkipper); ok {
		s.expectUpsert(skipping, last)
		if got := s.snapshot(skipDamage(s, s.watch(anything, anywhere, ""))); len(got) != 3 {
			s.Errorf("the snapshot of a watch that skips the damaged resource: got %d resources, want 3", len(got))
		}
	}

	damaged := readDamaged(s, id)
	if damaged == nil {
		return
	}
	if !bytes.HasSuffix(damaged.Data, data) {
		s.Errorf("the error of Read has the stored data %x, want %x", damaged.Data, data)
	}
	anew := damageThing("damaged")
	if anew.Id.Uid = damaged.ID.GetUid(); anew.Id.Uid == "" {
		anew.Id.Uid = "uid-new"
	}
	anew.Version = damaged.Version
	anew = s.write(anew)
	s.checkStored(anew)
	if got := s.list(things, home, ""); len(got) != 4 {
		s.Errorf("List after the damaged resource was written anew: got %d resources, want 4", len(got))
	}
	w := watchAfterSnapshot(s, "")
	s.h.Replace(s, s.url, anew.Id, data)
	_, err := s.b.Read(s.ctx, strong, id)
	if damaged = damagedError(s, "Read", err); damaged == nil {
		return
	}
	endsByDamage(s, "a watch opened after the write", w)
	s.noError("DeleteCAS of the damaged resource", s.b.DeleteCAS(s.ctx, damaged.ID, damaged.Version))
	s.checkAbsent(anew.Id)
	if got := s.list(things, home, ""); len(got) != 3 {
		s.Errorf("List after the damaged resource was deleted: got %d resources, want 3", len(got))
	}
	w = watchAfterSnapshot(s, "")
	s.expectUpsert(w, s.write(damageThing("damaged")))
}

// damageSkipper is a watch that can skip the damaged resources of some types: the watches of all adapters of this module.
type damageSkipper interface {
	storage.Watch
	SkipDamage(of func(storage.UnversionedType) bool)
}

// skipDamage makes a watch skip damaged Things, if it can.
func skipDamage(s *suite, w storage.Watch) storage.Watch {
	if skipper, ok := w.(damageSkipper); ok {
		skipper.SkipDamage(func(t storage.UnversionedType) bool { return t == things })
	}
	return w
}

// listWithoutDamage lists in pages that omit the damaged resource.
func listWithoutDamage(s *suite, id *resourcepb.ID) {
	s.Helper()
	for _, limit := range []int{0, 1} {
		omits := true
		opts := storage.ListOptions{Limit: limit, SkipDamaged: func(err *storage.DamagedError) bool {
			damagedError(s, "SkipDamaged", err)
			return omits
		}}
		var names []string
		for first := true; first || opts.Continue != ""; first = false {
			page := s.page(s.pager(), homeThings, opts)
			opts.Continue = page.Continue
			for _, res := range page.Resources {
				names = append(names, res.Id.Name)
			}
		}
		if !slices.Equal(names, []string{"above", "zebra", "zebra-2"}) {
			s.Errorf("a listing in pages of %d without the damaged resource has %q", limit, names)
		}
		omits = false
		page, err := s.pager().ListPage(s.ctx, things, home, id.Name, opts)
		for err == nil && page.Continue != "" { // the page is empty
			opts.Continue = page.Continue
			page, err = s.pager().ListPage(s.ctx, things, home, id.Name, opts)
		}
		damagedError(s, "ListPage, if SkipDamaged returns false", err)
	}
}

// readDamaged reads the damaged resource in every way and returns the error of Read.
func readDamaged(s *suite, id *resourcepb.ID) *storage.DamagedError {
	for _, consistency := range consistencies {
		_, err := s.b.Read(s.ctx, consistency, id)
		damagedError(s, "Read, "+consistency.String(), err)
		_, err = s.b.List(s.ctx, consistency, things, home, "")
		damagedError(s, "List, "+consistency.String(), err)
		_, err = s.b.List(s.ctx, consistency, anything, home, "d")
		damagedError(s, "List of all kinds, "+consistency.String(), err)
	}
	pager := s.pager()
	for _, limit := range []int{0, 1} {
		for page := (storage.Page{}); ; {
			var err error
			page, err = pager.ListPage(s.ctx, things, home, "", storage.ListOptions{Limit: limit, Continue: page.Continue})
			if err != nil {
				damagedError(s, "ListPage", err)
				break
			}
			if page.Continue == "" {
				s.Errorf("a listing in pages of %d ended without an error", limit)
				break
			}
		}
	}
	listWithoutDamage(s, id)
	w, err := s.b.WatchList(s.ctx, things, home, "")
	if err == nil {
		defer w.Close()
		for err == nil {
			var ev *resourcepb.WatchEvent
			if ev, err = s.nextOrError(w); ev.GetEndOfSnapshot() != nil {
				s.Error("the snapshot of a watch ended without an error")
				return nil
			}
		}
		if !errors.Is(err, storage.ErrWatchClosed) {
			s.Errorf("Next in a snapshot with the damaged resource: got error %v, want ErrWatchClosed", err)
		}
	}
	damagedError(s, "the snapshot of a watch", err)
	_, err = s.b.Read(s.ctx, strong, id)
	return damagedError(s, "Read", err)
}

// damagedError demands an error that names the damaged key and matches no retryable error.
func damagedError(s *suite, what string, err error) *storage.DamagedError {
	s.Helper()
	var damaged *storage.DamagedError
	if !errors.As(err, &damaged) || damaged.ID.GetName() != "damaged" || damaged.ID.GetType().GetKind() != thing.Kind {
		s.Errorf("%s: got error %v, want a DamagedError for the key", what, err)
		return nil
	}
	if errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrInconsistent) {
		s.Errorf("%s: the DamagedError matches ErrNotFound or ErrInconsistent: %v", what, err)
	}
	return damaged
}

// watchAfterSnapshot returns a watch of Things at home at the end of its snapshot.
func watchAfterSnapshot(s *suite, prefix string) storage.Watch {
	s.Helper()
	w := s.watch(things, home, prefix)
	s.snapshot(w)
	return w
}

// endsByDamage demands that a watch ends with an error that names the key and requires a new list. A watch from its cursor must end
// as well.
func endsByDamage(s *suite, what string, w storage.Watch) {
	s.Helper()
	ev, err := s.nextOrError(w)
	if !errors.Is(err, storage.ErrWatchClosed) || !errors.Is(err, storage.ErrCompacted) {
		s.Errorf("Next of %s: got %v, %v, want ErrWatchClosed with ErrCompacted", what, ev, err)
	}
	damagedError(s, "Next of "+what, err)
	resumed := s.resume(w.Cursor(), filter{things, home, ""})
	_, err = s.nextOrError(resumed)
	s.wantError("Next of a watch resumed after "+what, err, storage.ErrCompacted)
	resumed.Close()
}
