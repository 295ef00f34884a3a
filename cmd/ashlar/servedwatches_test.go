package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/client"
)

// everything matches a whole store.
var (
	everything = storage.UnversionedType{Group: storage.Wildcard, Kind: storage.Wildcard}
	everywhere = &resourcepb.Tenancy{Partition: storage.Wildcard, Namespace: storage.Wildcard}
)

func dialServer(t *testing.T, address string) *client.Backend {
	t.Helper()
	b, err := client.Dial(client.Options{Address: address})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// openStore opens the store without a server.
func openStore(t *testing.T, url string) storage.Backend {
	t.Helper()
	b, err := storage.Open(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// observation is the output of a watch so far: the versions of some counters, in order, until each has reached its end.
type observation struct {
	events []string
	err    error
}

// follow reads a watch until the resource called "end" is written.
func follow(ctx context.Context, w storage.Watch) (s observation) {
	for {
		ev, err := w.Next(ctx)
		if err != nil {
			s.err = err
			return s
		}
		res := ev.GetUpsert().GetResource()
		if res == nil {
			if gone := ev.GetDelete().GetResource(); gone != nil {
				s.events = append(s.events, "delete "+gone.GetId().GetName()+" "+gone.GetVersion())
			}
			continue
		}
		if res.GetId().GetName() == "end" {
			return s
		}
		s.events = append(s.events, res.GetId().GetName()+" "+res.GetVersion())
	}
}

func counter(name string, value int) *resourcepb.Resource {
	data, err := anypb.New(wrapperspb.Int64(int64(value)))
	if err != nil {
		panic(err)
	}
	return &resourcepb.Resource{
		Id: &resourcepb.ID{
			Name: name, Type: &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Counter"},
			Tenancy: &resourcepb.Tenancy{Partition: "default", Namespace: "default"},
		}, Data: data,
	}
}

func countOf(t *testing.T, res *resourcepb.Resource) int {
	var value wrapperspb.Int64Value
	require.NoError(t, res.GetData().UnmarshalTo(&value))
	return int(value.GetValue())
}

// increment increments a counter through a server, by compare-and-swap, until the increment is confirmed; it retries while the server is
// down. The metadata names the last increment of each writer, which resolves lost responses. A writer must not increment concurrently.
func increment(ctx context.Context, b storage.Backend, name, writer, id string) error {
	for {
		res, err := b.Read(ctx, storage.StrongConsistency, counter(name, 0).GetId())
		if err == nil && res.GetMetadata()[writer] == id {
			return nil
		}
		if err == nil {
			var value wrapperspb.Int64Value
			if err := res.GetData().UnmarshalTo(&value); err != nil {
				return err
			}
			next := counter(name, int(value.GetValue())+1)
			next.Id, next.Version, next.Metadata = res.GetId(), res.GetVersion(), res.GetMetadata()
			if next.Metadata == nil {
				next.Metadata = map[string]string{}
			}
			next.Metadata[writer] = id
			_, err = b.WriteCAS(ctx, next)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && !errors.Is(err, storage.ErrCASFailure) && !errors.Is(err, storage.ErrInconsistent) {
			return err
		}
	}
}

// killedUnderWatches repeatedly kills and restarts a server while clients write and watch. Each client must see the same events in the same
// order as a watch of the store itself: none missing, none twice.
func killedUnderWatches(t *testing.T, url string, watchers, kills int) {
	const writers, counters, rounds = 4, 3, 6
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	s := serveStore(t, url)
	setUp := dialServer(t, s.grpc)
	for i := range counters {
		_, err := setUp.WriteCAS(ctx, counter("c"+strconv.Itoa(i), 0))
		require.NoError(t, err)
	}

	// All watches resume at one position, because an interrupted snapshot cannot be resumed.
	page, err := openStore(t, url).(storage.Pager).ListPage(ctx, everything, everywhere, "", storage.ListOptions{Consistency: storage.StrongConsistency})
	require.NoError(t, err)
	truth, err := openStore(t, url).(storage.Resumer).WatchFrom(ctx, everything, everywhere, "", page.Cursor)
	require.NoError(t, err)
	defer truth.Close()
	shown := make([]observation, watchers)
	var watching, writing sync.WaitGroup
	for i := range watchers {
		w, err := dialServer(t, s.grpc).WatchFrom(ctx, everything, everywhere, "", page.Cursor)
		require.NoError(t, err)
		defer w.Close()
		watching.Go(func() { shown[i] = follow(ctx, w) })
	}
	failed := make(chan error, writers)
	tasks := make(chan int) // each is a number of increments
	for i := range writers {
		b := dialServer(t, s.grpc)
		writing.Go(func() {
			for n := range tasks {
				for j := range rounds {
					if err := increment(ctx, b, "c"+strconv.Itoa((i+j)%counters), fmt.Sprintf("w%d", i), fmt.Sprintf("t%d-%d", n, j)); err != nil {
						failed <- err
						return
					}
				}
			}
		})
	}
	given := 0
	give := func() {
		for range writers {
			select {
			case tasks <- given:
				given++
			case err := <-failed:
				require.NoError(t, err)
			case <-ctx.Done():
				t.Fatal("the writers make no progress")
			}
		}
	}
	give()
	for range kills {
		s.kill()
		s = s.restart(url)
		give()
	}
	close(tasks)
	writing.Wait()
	require.Empty(t, failed)
	_, err = dialServer(t, s.grpc).WriteCAS(ctx, counter("end", 0))
	require.NoError(t, err)
	want := follow(ctx, truth)
	require.NoError(t, want.err)
	require.GreaterOrEqual(t, len(want.events), writers*rounds*(kills+1), "each increment is at least one write")
	watching.Wait()
	for i := range shown {
		require.NoError(t, shown[i].err, "watcher %d", i)
		require.Equal(t, want.events, shown[i].events, "watcher %d", i)
	}
	total := 0
	for i := range counters {
		res, err := openStore(t, url).Read(ctx, storage.StrongConsistency, counter("c"+strconv.Itoa(i), 0).GetId())
		require.NoError(t, err)
		total += countOf(t, res)
	}
	require.Equal(t, writers*rounds*(kills+1), total, "no update is lost or applied twice")
}

func TestServeKilledUnderWatches(t *testing.T) {
	t.Parallel()
	killedUnderWatches(t, fileURL(t), 20, 3)
}

// twoServers runs clients that write and watch at two servers of one store.
func twoServers(t *testing.T, url string) {
	const writers, watchers, rounds = 4, 5, 10 // at each server
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	servers := []*serverProcess{serveStore(t, url), serveStore(t, url)}
	_, err := dialServer(t, servers[0].grpc).WriteCAS(ctx, counter("c", 0))
	require.NoError(t, err)
	truth, err := openStore(t, url).WatchList(ctx, everything, everywhere, "")
	require.NoError(t, err)
	defer truth.Close()
	shown := make([]observation, 2*watchers)
	var watching, writing sync.WaitGroup
	failed := make(chan error, 2*writers)
	for i, s := range servers {
		for j := range watchers {
			w, err := dialServer(t, s.grpc).WatchList(ctx, everything, everywhere, "")
			require.NoError(t, err)
			defer w.Close()
			ev, err := w.Next(ctx) // of the snapshot, so that all changes come after it
			require.NoError(t, err)
			require.Equal(t, "c", ev.GetUpsert().GetResource().GetId().GetName())
			watching.Go(func() {
				shown[i*watchers+j] = follow(ctx, w)
			})
		}
	}
	for i, s := range servers {
		for j := range writers {
			b := dialServer(t, s.grpc)
			writing.Go(func() {
				for n := range rounds {
					if err := increment(ctx, b, "c", fmt.Sprintf("s%d-w%d", i, j), strconv.Itoa(n)); err != nil {
						failed <- err
						return
					}
				}
			})
		}
	}
	writing.Wait()
	require.Empty(t, failed)
	_, err = dialServer(t, servers[1].grpc).WriteCAS(ctx, counter("end", 0))
	require.NoError(t, err)
	want := follow(ctx, truth)
	require.NoError(t, want.err)
	require.Len(t, want.events, 1+2*writers*rounds)
	watching.Wait()
	for i := range shown {
		require.NoError(t, shown[i].err, "watcher %d", i)
		require.Equal(t, want.events[1:], shown[i].events, "watcher %d", i)
	}
	res, err := dialServer(t, servers[0].grpc).Read(ctx, storage.StrongConsistency, counter("c", 0).GetId())
	require.NoError(t, err)
	require.Equal(t, 2*writers*rounds, countOf(t, res), "no update is lost")
}

func TestTwoServersOfOneStore(t *testing.T) {
	t.Parallel()
	twoServers(t, fileURL(t))
}
