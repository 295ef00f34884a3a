package paging_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/cursor"
	"github.com/ashlar-dev/storage/internal/paging"
	"github.com/ashlar-dev/storage/internal/spill"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	store  = cursor.StoreID{1}
	filter = key.Filter{Group: "g", Kind: "K", Partition: "p", Namespace: "n"}
)

func rows(t *testing.T, n int) *spill.Spool {
	t.Helper()
	s := spill.New(100)
	for i := range n {
		if err := s.Append(fmt.Appendf(nil, "row %d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Seal(); err != nil {
		t.Fatal(err)
	}
	return s
}

func shelf(t *testing.T, o paging.Options) *paging.Shelf {
	t.Helper()
	s := paging.New(store, o)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func hold(t *testing.T, s *paging.Shelf, n int) string {
	t.Helper()
	token, err := s.Hold(filter, "the cursor", rows(t, n))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestPages(t *testing.T) {
	t.Parallel()
	s := shelf(t, paging.Options{})
	token := hold(t, s, 100)
	for _, limit := range []int{1, 7, 50, 99, 100, 101} {
		var got []string
		for at := token; at != ""; {
			page, err := s.Next(filter, at, limit)
			if err != nil {
				t.Fatal(err)
			}
			again, err := s.Next(filter, at, limit)
			if err != nil || !slices.EqualFunc(page.Records, again.Records, slices.Equal) || again.Continue != page.Continue {
				t.Fatalf("limit %d: the same token gave another page: %v", limit, err)
			}
			if len(page.Records) == 0 || len(page.Records) > limit || page.Cursor != "the cursor" {
				t.Fatalf("limit %d: a page of %d records with cursor %q", limit, len(page.Records), page.Cursor)
			}
			for _, r := range page.Records {
				got = append(got, string(r))
			}
			at = page.Continue
		}
		if len(got) != 100 || got[0] != "row 0" || got[99] != "row 99" {
			t.Fatalf("limit %d: %d records: %v", limit, len(got), got)
		}
	}
}

func TestPageEndsByItsBytes(t *testing.T) {
	t.Parallel()
	s := shelf(t, paging.Options{})
	big := spill.New(0)
	for range 3 {
		if err := big.Append(make([]byte, paging.PageBytes)); err != nil {
			t.Fatal(err)
		}
	}
	if err := big.Seal(); err != nil {
		t.Fatal(err)
	}
	token, err := s.Hold(filter, "", big)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		page, err := s.Next(filter, token, 10)
		if err != nil || len(page.Records) != 1 || (page.Continue == "") != (i == 2) {
			t.Fatalf("page %d has %d records and continues with %q: %v", i, len(page.Records), page.Continue, err)
		}
		token = page.Continue
	}
}

func TestTokensThatAreNone(t *testing.T) {
	t.Parallel()
	s := shelf(t, paging.Options{})
	token := hold(t, s, 10)
	payload, err := cursor.Decode(cursor.Page, store, token)
	if err != nil {
		t.Fatal(err)
	}
	other := filter
	other.NamePrefix = "x"
	unknown := slices.Clone(payload)
	unknown[0]++
	for name, c := range map[string]struct {
		filter key.Filter
		token  string
		want   error
	}{
		"empty":             {filter, "", storage.ErrInvalid},
		"garbage":           {filter, "garbage", storage.ErrInvalid},
		"cut short":         {filter, token[:len(token)-2], storage.ErrInvalid},
		"a watch cursor":    {filter, cursor.Encode(cursor.Watch, store, payload), storage.ErrInvalid},
		"no payload":        {filter, cursor.Encode(cursor.Page, store, nil), storage.ErrInvalid},
		"no offset":         {filter, cursor.Encode(cursor.Page, store, payload[:32]), storage.ErrInvalid},
		"more at the end":   {filter, cursor.Encode(cursor.Page, store, append(slices.Clone(payload), 1)), storage.ErrInvalid},
		"inside a record":   {filter, cursor.Encode(cursor.Page, store, append(slices.Clone(payload[:32]), 3)), storage.ErrInvalid},
		"another filter":    {other, token, storage.ErrInvalid},
		"an unknown list":   {filter, cursor.Encode(cursor.Page, store, unknown), storage.ErrCompacted},
		"another store":     {filter, cursor.Encode(cursor.Page, cursor.StoreID{2}, payload), storage.ErrCompacted},
		"the right one too": {filter, token, nil},
	} {
		if _, err := s.Next(c.filter, c.token, 5); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, expected %v", name, err, c.want)
		}
	}
}

// Listings that others begin, finish or abandon never cost a caller the rest of his own.
func TestALiveTokenIsNotGivenUpForOthers(t *testing.T) {
	t.Parallel()
	s := shelf(t, paging.Options{})
	token := hold(t, s, 10)
	for range 2 * paging.DefaultListings {
		other := hold(t, s, 2)
		page, err := s.Next(filter, other, 1)
		if err != nil {
			t.Fatal(err)
		}
		if page, err = s.Next(filter, page.Continue, 1); err != nil || page.Continue != "" {
			t.Fatalf("continues with %q, %v; expected the last page", page.Continue, err)
		}
	}
	if _, err := s.Next(filter, token, 1); err != nil {
		t.Errorf("after %d finished listings of others: %v", 2*paging.DefaultListings, err)
	}
}

// A full shelf turns away the listing that comes last, until one ends: by its last page or by its age.
func TestAFullShelfTurnsNewListingsAway(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]paging.Options{
		"by number": {Listings: 2},
		"by bytes":  {Bytes: 2 * rows(t, 10).Size()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := paging.New(store, o)
				defer s.Close()
				wantNext := func(token string, limit int, want error) {
					t.Helper()
					if _, err := s.Next(filter, token, limit); !errors.Is(err, want) {
						t.Errorf("%v, expected %v", err, want)
					}
				}
				refused := func() {
					t.Helper()
					if token, err := s.Hold(filter, "", rows(t, 10)); !errors.Is(err, storage.ErrInconsistent) || token != "" {
						t.Errorf("one listing too many: %q, %v; expected ErrInconsistent", token, err)
					}
				}
				first, second := hold(t, s, 10), hold(t, s, 10)
				refused()
				wantNext(first, 1, nil)
				wantNext(second, 10, nil) // its last page
				wantNext(second, 10, nil) // whoever has lost the answer asks again
				third := hold(t, s, 10)
				wantNext(second, 1, storage.ErrCompacted)
				wantNext(first, 1, nil)
				wantNext(third, 10, nil)
				wantNext(third, 1, nil) // which begins it anew
				refused()
				time.Sleep(paging.DefaultTTL + time.Second)
				fourth := hold(t, s, 10)
				wantNext(first, 1, storage.ErrCompacted)
				wantNext(fourth, 1, nil)
			})
		})
	}
}

// What does not fit into the memory of all listings together lies on disk, and reads the same.
func TestMemoryOfAllListingsIsBounded(t *testing.T) {
	t.Parallel()
	size := rows(t, 5).Size()
	if rows(t, 5).Memory() != size {
		t.Fatal("these rows must fit into memory")
	}
	s := shelf(t, paging.Options{Memory: 2 * size})
	var tokens []string
	var held []*spill.Spool
	for range 4 {
		r := rows(t, 5)
		token, err := s.Hold(filter, "", r)
		if err != nil {
			t.Fatal(err)
		}
		tokens, held = append(tokens, token), append(held, r)
	}
	for i, want := range []int64{size, size, 0, 0} {
		if got := held[i].Memory(); got != want {
			t.Errorf("listing %d has %d bytes in memory, expected %d", i, got, want)
		}
		page, err := s.Next(filter, tokens[i], 10)
		if err != nil || len(page.Records) != 5 || string(page.Records[4]) != "row 4" {
			t.Errorf("listing %d: %q, %v", i, page.Records, err)
		}
	}
	// All are finished: they leave, and memory is free again.
	r := rows(t, 5)
	if _, err := s.Hold(filter, "", r); err != nil || r.Memory() != size {
		t.Errorf("the next one has %d bytes in memory, expected %d; %v", r.Memory(), size, err)
	}
}

func TestFirst(t *testing.T) {
	t.Parallel()
	s := shelf(t, paging.Options{Listings: 1})
	for range 3 { // a listing of one page takes no place
		all := rows(t, 10)
		page, err := s.First(filter, "the cursor", all, 10)
		if err != nil || len(page.Records) != 10 || page.Continue != "" || page.Cursor != "the cursor" {
			t.Fatalf("%d records, continues with %q, %v", len(page.Records), page.Continue, err)
		}
		if _, err := all.Read(0).Next(); err == nil {
			t.Fatal("the rows are still held")
		}
	}
	if page, err := s.First(filter, "", rows(t, 0), 10); err != nil || len(page.Records) != 0 || page.Continue != "" {
		t.Fatalf("a list of nothing: %v, %v", page, err)
	}
	page, err := s.First(filter, "the cursor", rows(t, 10), 4)
	if err != nil || len(page.Records) != 4 || page.Continue == "" {
		t.Fatalf("%d records, continues with %q, %v", len(page.Records), page.Continue, err)
	}
	page, err = s.Next(filter, page.Continue, 10)
	if err != nil || len(page.Records) != 6 || string(page.Records[0]) != "row 4" || page.Continue != "" || page.Cursor != "the cursor" {
		t.Fatalf("%q, continues with %q, %v", page.Records, page.Continue, err)
	}
}

func TestALargeListingIsHeldAlone(t *testing.T) {
	t.Parallel()
	s := shelf(t, paging.Options{Bytes: 1})
	if _, err := s.Next(filter, hold(t, s, 10), 1); err != nil {
		t.Fatal(err)
	}
}

func TestExpiry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := paging.New(store, paging.Options{})
		defer s.Close()
		used, abandoned := hold(t, s, 10), hold(t, s, 10)
		for range 3 {
			time.Sleep(5 * time.Minute)
			if _, err := s.Next(filter, used, 1); err != nil {
				t.Fatalf("used 5 minutes ago: %v", err)
			}
		}
		if _, err := s.Next(filter, abandoned, 1); !errors.Is(err, storage.ErrCompacted) {
			t.Fatalf("abandoned 15 minutes ago: %v, expected ErrCompacted", err)
		}
	})
}

func TestClose(t *testing.T) {
	t.Parallel()
	s := paging.New(store, paging.Options{})
	token := hold(t, s, 10)
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Next(filter, token, 1); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("Next: %v, expected ErrClosed", err)
	}
	if _, err := s.Hold(filter, "", rows(t, 1)); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("Hold: %v, expected ErrClosed", err)
	}
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	s := shelf(t, paging.Options{Listings: 8, Memory: 3 * rows(t, 20).Size()})
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for range 50 {
				for at := hold(t, s, 20); at != ""; {
					page, err := s.Next(filter, at, 5)
					if err != nil || len(page.Records) != 5 || !strings.HasPrefix(string(page.Records[0]), "row ") {
						t.Errorf("%d records, %v", len(page.Records), err)
						return
					}
					at = page.Continue
				}
			}
		})
	}
	callers.Wait()
}

// Whoever uses a listing in the very moment in which it would have been given up keeps it.
func TestUsedAtTheLastMoment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := paging.New(store, paging.Options{})
		defer s.Close()
		for range 1000 {
			token := hold(t, s, 10)
			time.Sleep(paging.DefaultTTL) // as long as the timer's
			page, err := s.Next(filter, token, 1)
			if errors.Is(err, storage.ErrCompacted) {
				continue // the timer was faster
			}
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if _, err := s.Next(filter, page.Continue, 1); err != nil {
				t.Fatalf("used a moment ago: %v", err)
			}
		}
	})
}

// A listing costs what its rows take, however many tokens were made for it. Not parallel: it looks at the heap.
func TestTokensCostNoMemory(t *testing.T) {
	s := shelf(t, paging.Options{})
	const records = 50_000
	all := spill.New(1 << 20)
	for range records {
		if err := all.Append([]byte{'x'}); err != nil {
			t.Fatal(err)
		}
	}
	if err := all.Seal(); err != nil {
		t.Fatal(err)
	}
	token, err := s.Hold(filter, "", all)
	if err != nil {
		t.Fatal(err)
	}
	before := heap()
	for range records - 1 {
		page, err := s.Next(filter, token, 1)
		if err != nil {
			t.Fatal(err)
		}
		token = page.Continue
	}
	if grown := heap() - before; grown > 256<<10 {
		t.Errorf("%d tokens cost %d bytes", records, grown)
	}
}

// heap returns the bytes in use after a collection.
func heap() int {
	runtime.GC()
	runtime.GC() // what pools held on to
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
