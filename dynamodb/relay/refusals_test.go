package relay_test

import (
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/dynamodb"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// openURL opens a store with further parameters.
func openURL(t *testing.T, s *dynamofake.Server, params string) (*dynamodb.Backend, error) {
	t.Helper()
	u, err := url.Parse(s.URL() + "&poll=5ms&idle-poll=50ms&relay-ttl=2s&watch=relay" + params)
	if err != nil {
		t.Fatal(err)
	}
	b, err := dynamodb.Open(t.Context(), u)
	if err == nil {
		t.Cleanup(func() { _ = b.Close() })
	}
	return b, err
}

// closedAddress returns an address that refuses connections, until another socket gets its port.
func closedAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	return l.Addr().String()
}

// openAtFreeAddress opens a store whose process listens at an address that the further parameters depend on. It repeats this with another
// address after an error, because another socket may have got the port.
func openAtFreeAddress(t *testing.T, s *dynamofake.Server, params func(address string) string) {
	t.Helper()
	fixture.Eventually(t, "the store is open", func() bool {
		address := closedAddress(t)
		_, err := openURL(t, s, params(address)+"&relay-listen="+address)
		if err != nil {
			t.Log(err)
		}
		return err == nil
	})
}

// An address that other machines cannot reach must be advertised explicitly, and the parameters of relays need watch=relay.
func TestParametersAreChecked(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	for _, params := range []string{
		"&relay-listen=127.0.0.1:0", "&relay-listen=:0", "&relay-listen=localhost:0", "&relay-advertise=10.0.0.1:1",
		"&relay-listen=127.0.0.1:0&relay-advertise=10.0.0.1", "&relay-listen=127.0.0.1:0&relay-advertise=127.0.0.1:0&relay-cert=/nowhere",
		"&relay-listen=127.0.0.1:0&relay-advertise=127.0.0.1:0&relay-cert=/nowhere&relay-key=/nowhere", "&relay-ttl=900ms",
	} {
		if _, err := openURL(t, s, params); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("%s: got %v, expected %v", params, err, storage.ErrInvalid)
		}
	}
	u, _ := url.Parse(s.URL() + "&relay-listen=10.0.0.1:1")
	if _, err := dynamodb.Open(t.Context(), u); !errors.Is(err, storage.ErrInvalid) {
		t.Errorf("without watch=relay: got %v, expected %v", err, storage.ErrInvalid)
	}
}

// A watch without any relay is not silent for ever: it ends after the outage, and a new one fails.
func TestWatchWithoutRelays(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b, err := openURL(t, s, "&outage=1s")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.WatchList(t.Context(), boxType, tenancy, ""); err == nil || !strings.Contains(err.Error(), "no process is a relay") {
		t.Errorf("got %v, expected the absence of relays", err)
	}
	if n := s.Calls("GetRecords"); n > 0 {
		t.Errorf("a subscriber read the stream %d times", n)
	}
}

// A process whose advertised address nobody reaches reads for itself, and is never a relay for others.
func TestUnreachableProcessIsNoRelay(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	alone, err := openURL(t, s, "&relay-listen=127.0.0.1:0&relay-advertise="+closedAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	w := fixture.WatchChanges(t, alone)
	other, err := openURL(t, s, "&outage=1s")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.WatchList(t.Context(), boxType, tenancy, ""); err == nil {
		t.Error("a subscriber found a relay")
	}
	if _, err := alone.WriteCAS(t.Context(), box("a", nil)); err != nil {
		t.Fatal(err)
	}
	fixture.Next(t, w)
	// A reachable candidate becomes a relay, and others watch.
	if _, err := openURL(t, s, relayParams); err != nil {
		t.Fatal(err)
	}
	late, err := openURL(t, s, "")
	if err != nil {
		t.Fatal(err)
	}
	fixture.WatchChanges(t, late)
}

// A relay of the table before it got another stream, as by a restore, is not followed: its records are another history. It then reads the new
// stream.
func TestRelayOfAnotherHistory(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	if _, err := openURL(t, s, relayParams); err != nil {
		t.Fatal(err)
	}
	b, err := openURL(t, s, "")
	if err != nil {
		t.Fatal(err)
	}
	fixture.WatchChanges(t, b)
	s.Disable()
	s.Enable()
	later, err := openURL(t, s, "&outage=1s")
	if err != nil {
		t.Fatal(err)
	}
	// Until then, the error depends on how far the relay has come, and on the speed of the machine.
	fixture.Eventually(t, "a watch of the new stream", func() bool {
		w, err := later.WatchList(t.Context(), boxType, tenancy, "")
		if err == nil {
			w.Close()
		}
		return err == nil
	})
}

// A subscriber with another token than the relay's is refused.
func TestTokensOfFiles(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	file := func(token string) string {
		path := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return "&relay-token-file=" + url.QueryEscape(path)
	}
	right, wrong := file("right"), file("wrong")
	if _, err := openURL(t, s, relayParams+right); err != nil {
		t.Fatal(err)
	}
	b, err := openURL(t, s, right)
	if err != nil {
		t.Fatal(err)
	}
	fixture.WatchChanges(t, b)
	intruder, err := openURL(t, s, wrong+"&outage=1s")
	if err != nil {
		t.Fatal(err)
	}
	// On a busy machine, an outage can pass before the relay answers.
	fixture.Eventually(t, "the error names the token", func() bool {
		_, err := intruder.WatchList(t.Context(), boxType, tenancy, "")
		if err == nil {
			t.Fatal("a watch was opened with another token")
		}
		return strings.Contains(err.Error(), "token")
	})
	// Without the file, the token of the table is empty.
	outsider, err := openURL(t, s, "&outage=1s")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := outsider.WatchList(t.Context(), boxType, tenancy, ""); err == nil {
		t.Error("a subscriber without the token was admitted")
	}
}

// With create=off a handle with relays changes nothing of the table: it only adds the store of the relays.
func TestRelaysOfATableThatIsNotCreated(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	openDirectory(t, s) // creates the table
	open(t, s, false)   // creates the store
	s.SetTimeToLive(false)
	existing := func(o *dynamodb.Options) { o.NoCreate = true }
	open(t, s, true, existing)
	fixture.WatchChanges(t, open(t, s, false, existing))
	if s.TimeToLive() {
		t.Error("the time-to-live of the table was enabled")
	}
}
