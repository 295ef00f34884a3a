package relay_test

import (
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/dynamodb"
	"github.com/ashlar-dev/storage/internal/freeze"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// series writes states of one resource, and expects watches to return each once and in order.
type series struct {
	writer  *dynamodb.Backend
	watches []storage.Watch
	res     *resourcepb.Resource
	writes  int
}

func newSeries(t *testing.T, writer *dynamodb.Backend, subscribers ...*dynamodb.Backend) *series {
	t.Helper()
	s := &series{writer: writer, res: box("a", nil)}
	for _, b := range subscribers {
		s.watches = append(s.watches, fixture.WatchChanges(t, b))
	}
	return s
}

// write writes n states.
func (s *series) write(t *testing.T, n int) (versions []string) {
	t.Helper()
	for range n {
		s.writes++
		s.res.Data.Value = fmt.Append(nil, s.writes)
		s.res = fixture.Write(t, s.writer, s.res)
		versions = append(versions, s.res.GetVersion())
	}
	return versions
}

// expect expects these states next from each watch.
func (s *series) expect(t *testing.T, versions []string) {
	t.Helper()
	for i, w := range s.watches {
		for _, version := range versions {
			if got := fixture.Next(t, w).GetUpsert().GetResource(); got.GetVersion() != version {
				t.Fatalf("watch %d: got %s, expected the next of %d states", i, got.GetData().GetValue(), len(versions))
			}
		}
	}
}

// The subscribers of a relay that cannot read the stream use the other relay. When the other relay ends, they return to the first one, which is
// behind them by then. It repeats no change.
func TestRelayBehindItsSubscribers(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	relays := []*dynamodb.Backend{open(t, s, true, patient), open(t, s, true, patient)} // client-1 and client-2
	boxes := newSeries(t, open(t, s, false, patient), open(t, s, false, patient), open(t, s, false, patient))
	publishedRelays(t, openDirectory(t, s), 2)
	boxes.expect(t, boxes.write(t, 2))
	s.SetRefused("client-1")
	boxes.expect(t, boxes.write(t, 5))
	missed := boxes.write(t, 1)
	_ = relays[1].Close()
	s.SetRefused()
	boxes.expect(t, missed)
	boxes.expect(t, boxes.write(t, 5))
}

// A relay that was suspended until others replaced it, and that resumes, delays nothing and repeats nothing: neither to the subscribers that
// left it, nor when it serves them again.
func TestRelayResumesAfterItsSuccessors(t *testing.T) {
	t.Parallel()
	if !freeze.Possible {
		t.Skip("this system cannot suspend a process") //nolint:forbidigo // Windows
	}
	s := dynamofake.New(t)
	s.SetReaders(2)
	address := s.URL() + "&poll=5ms&idle-poll=50ms&watch=relay&relay-ttl=2s" + relayParams
	first := startProcess(t, "first", address, 0)
	boxes := newSeries(t, open(t, s, false), open(t, s, false), open(t, s, false))
	boxes.expect(t, boxes.write(t, 2))
	if err := freeze.Stop(first.command.Process); err != nil {
		t.Fatal(err)
	}
	missed := boxes.write(t, 5)
	successors := []*process{startProcess(t, "second", address, 0), startProcess(t, "third", address, 0)}
	boxes.expect(t, missed)
	directory := openDirectory(t, s)
	publishedRelays(t, directory, 2)
	if err := freeze.Wake(first.command.Process); err != nil {
		t.Fatal(err)
	}
	boxes.expect(t, boxes.write(t, 5))
	for _, p := range successors {
		p.kill()
	}
	boxes.expect(t, boxes.write(t, 5))
}

// valve forwards connections, and loses the bytes of a direction that is closed.
type valve struct {
	listener          net.Listener
	target            string
	requests, answers atomic.Bool // lost
}

func newValve(t *testing.T, target string) *valve {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	v := &valve{listener: listener, target: target}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			go forward(client, server, &v.requests)
			go forward(server, client, &v.answers)
		}
	}()
	return v
}

// forward forwards bytes in one direction until a connection ends.
func forward(from, to net.Conn, lost *atomic.Bool) {
	defer func() { _, _ = from.Close(), to.Close() }()
	_, _ = io.Copy(writerFunc(func(b []byte) (int, error) {
		if lost.Load() {
			return len(b), nil
		}
		return to.Write(b)
	}), from)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// A connection that loses the bytes of one direction delays changes until the subscriber uses the other relay.
func TestConnectionsThatLoseOneDirection(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	var v *valve
	openAtFreeAddress(t, s, func(address string) string {
		v = newValve(t, address)
		return "&relay-advertise=" + v.listener.Addr().String()
	})
	open(t, s, true)
	boxes := newSeries(t, open(t, s, false), open(t, s, false), open(t, s, false), open(t, s, false))
	publishedRelays(t, openDirectory(t, s), 2)
	boxes.expect(t, boxes.write(t, 2))
	for name, direction := range map[string]*atomic.Bool{"answers": &v.answers, "requests": &v.requests} {
		direction.Store(true)
		boxes.expect(t, boxes.write(t, 5))
		if _, err := open(t, s, false).WatchList(fixture.Context(t), boxType, tenancy, ""); err != nil {
			t.Errorf("a watch while %s are lost: %v", name, err)
		}
		direction.Store(false)
	}
	boxes.expect(t, boxes.write(t, 5))
}

// The records of candidates that were killed do not accumulate: each subscriber without a relay would probe all of them.
func TestRecordsOfKilledCandidates(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	directory := openDirectory(t, s)
	const slots = 6
	for i := range slots {
		publish(t, directory, &resourcepb.Resource{Id: &resourcepb.ID{
			Uid: fmt.Sprint("dead-", i), Name: fmt.Sprint(i + 1), Tenancy: &resourcepb.Tenancy{},
			Type: &resourcepb.Type{Group: "relay", GroupVersion: "v1", Kind: "Candidate"},
		}}, map[string]string{"process": fmt.Sprint("dead-", i), "address": "127.0.0.1:1", "key": "none"})
	}
	open(t, s, true)
	open(t, s, true)
	fixture.WatchChanges(t, open(t, s, false))
	publishedRelays(t, directory, 2)
	candidates, err := directory.List(t.Context(), storage.StrongConsistency, storage.UnversionedType{Group: "relay", Kind: "Candidate"}, &resourcepb.Tenancy{}, "")
	if err != nil {
		t.Fatal(err)
	}
	if len(candidates) != slots {
		t.Errorf("%d candidates are recorded, expected %d", len(candidates), slots)
	}
}

// patient options wait for relays on a busy machine.
func patient(o *dynamodb.Options) { o.Relay.TTL, o.Outage = 10*time.Second, time.Minute }

// The shards are replaced while no relay reads the stream. The ticks of the next relay are late, so its log begins at the start of the new
// shards. A subscriber still needs the rest of the old shards.
func TestShardsAreReplacedBeforeARelayWithoutTicks(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	first := open(t, s, true, patient)
	subscriber := open(t, s, false, patient)
	boxes := newSeries(t, subscriber, subscriber)
	boxes.expect(t, boxes.write(t, 2))
	_ = first.Close()
	missed := boxes.write(t, 3)
	s.Roll()
	s.SetEmptyPages(1 << 20)
	open(t, s, true, patient)
	publishedRelays(t, openDirectory(t, s), 1)
	s.SetEmptyPages(0)
	s.ExpireIterators()
	boxes.expect(t, missed)
	boxes.expect(t, boxes.write(t, 3))
}
