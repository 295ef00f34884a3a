package bench

import (
	"context"
	"errors"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// growingStore is the growing store of Ashlar.
type growingStore struct {
	backend  storage.Backend
	data     []byte
	versions []string // of the items that this process has added
	tidy     func() error
}

// openGrowing opens a store. tidy, which may be nil, makes its database finish the background work of filling.
func openGrowing(url string, tidy func() error) (*growingStore, error) {
	backend, err := storage.Open(context.Background(), url)
	if err != nil {
		return nil, err
	}
	return &growingStore{backend: backend, data: payload(500), tidy: tidy}, nil
}

func (s *growingStore) thing(i int) *resourcepb.Resource {
	res := resource(nameOf(i), 0)
	res.Data.Value = s.data
	if owner, owned := ownerOf(i); owned {
		res.Owner = id(nameOf(owner))
	}
	return res
}

func (s *growingStore) add(from, to int, done func(n int)) error {
	s.versions = append(s.versions, make([]string, to-from)...)
	if loader, ok := storage.As[driver.Bulk](s.backend); ok {
		if err := s.load(loader, from, to, done); err != nil {
			return err
		}
		return s.learnVersions(from)
	}
	tx, ok := storage.As[storage.Transactor](s.backend)
	if !ok {
		return errors.New("the backend has neither a driver.Bulk nor a storage.Transactor")
	}
	// An edge to an owner is also an operation if MaxOps is small, and the resources of a transaction have at most 1 MiB in total.
	return inBatches(from, to, min(tx.MaxOps(), 1000), 8, done, func(from, to int) error {
		ops := make([]storage.Op, to-from)
		for i := range ops {
			ops[i].Write = s.thing(from + i)
		}
		written, err := tx.Commit(context.Background(), ops)
		for i, res := range written {
			s.versions[from+i] = res.Version
		}
		return err
	})
}

func (s *growingStore) load(loader driver.Bulk, from, to int, done func(n int)) error {
	return inBatches(from, to, 1000, 4, done, func(from, to int) error {
		rows := make([]driver.Row, to-from)
		for i := range rows {
			res := s.thing(from + i)
			data, err := driver.Encode(res)
			if err != nil {
				return err
			}
			rows[i] = driver.Row{Key: key.Of(res.Id), Data: data}
		}
		return loader.Load(context.Background(), rows)
	})
}

// learnVersions reads the versions of the items from one number on, which a driver.Bulk does not return.
func (s *growingStore) learnVersions(from int) error {
	reader, ok := storage.As[driver.Bulk](s.backend)
	if !ok {
		return errors.New("the backend has no driver.Bulk")
	}
	after := []byte{}
	if from > 0 {
		after = key.Of(id(nameOf(from - 1))).Bytes()
	}
	for {
		rows, err := reader.ReadAfter(context.Background(), after, 1000)
		if err != nil || len(rows) == 0 {
			return err
		}
		for _, row := range rows {
			i, err := strconv.Atoi(row.Key.Name)
			if err != nil {
				return err
			}
			s.versions[i] = row.Version
		}
		after = rows[len(rows)-1].Key.Bytes()
	}
}

// inBatches calls create for the numbers from one to another, in batches, from several goroutines.
func inBatches(from, to, batch, parallel int, done func(n int), create func(from, to int) error) error {
	var group errgroup.Group
	group.SetLimit(parallel)
	var mu sync.Mutex
	created := 0
	for ; from < to; from += batch {
		first, end := from, min(from+batch, to)
		group.Go(func() error {
			if err := create(first, end); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			created += end - first
			done(created)
			return nil
		})
	}
	return group.Wait()
}

func (s *growingStore) settle() error {
	if s.tidy == nil {
		return nil
	}
	return s.tidy()
}

func (s *growingStore) read(i int) error {
	_, err := s.backend.Read(context.Background(), storage.StrongConsistency, id(nameOf(i)))
	return err
}

func (s *growingStore) write(i int) error {
	res := s.thing(i)
	res.Version = s.versions[i]
	written, err := s.backend.WriteCAS(context.Background(), res)
	if err == nil {
		s.versions[i] = written.Version
	}
	return err
}

func (s *growingStore) list(prefix string) (int, error) {
	list, err := s.backend.List(context.Background(), storage.StrongConsistency, everything, anywhere, prefix)
	return len(list), err
}

func (s *growingStore) watch(prefix string) (n int, err error) {
	ctx := context.Background()
	w, err := s.backend.WatchList(ctx, everything, anywhere, prefix)
	if err != nil {
		return 0, err
	}
	defer w.Close()
	for ; ; n++ {
		ev, err := w.Next(ctx)
		if err != nil || ev.GetEndOfSnapshot() != nil {
			return n, err
		}
	}
}

func (s *growingStore) owned(i int) (int, error) {
	ids, err := s.backend.OwnerReferences(context.Background(), id(nameOf(i)))
	return len(ids), err
}

func (s *growingStore) page(limit int, token string) (storage.Page, error) {
	pager, ok := storage.As[storage.Pager](s.backend)
	if !ok {
		return storage.Page{}, errors.New("the backend is no storage.Pager")
	}
	return pager.ListPage(context.Background(), everything, anywhere, "",
		storage.ListOptions{Consistency: storage.StrongConsistency, Limit: limit, Continue: token})
}

func (s *growingStore) first(limit int) (int, error) {
	page, err := s.page(limit, "")
	return len(page.Resources), err
}

func (s *growingStore) walk(limit int) (n int, err error) {
	for token := ""; ; {
		page, err := s.page(limit, token)
		if err != nil {
			return n, err
		}
		n += len(page.Resources)
		if token = page.Continue; token == "" {
			return n, nil
		}
	}
}

func (s *growingStore) close() error { return s.backend.Close() }
