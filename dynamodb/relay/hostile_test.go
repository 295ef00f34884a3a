package relay_test

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/internal/wire"
	"github.com/ashlar-dev/storage/internal/wire/wiregrpc"
)

// bearer sends a token.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": string(b)}, nil
}

func (bearer) RequireTransportSecurity() bool { return true }

// dial returns a client of a relay that sends a token.
func dial(t *testing.T, address, token string) wiregrpc.WatchesClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})),
		grpc.WithPerRPCCredentials(bearer(token)), grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return wiregrpc.NewWatchesClient(conn)
}

// answered repeats a call until a relay answers. On a busy machine a process may lose its role as a relay, and takes it again.
func answered(t *testing.T, call func() error) (err error) {
	t.Helper()
	fixture.Eventually(t, "a relay answers", func() bool {
		err = call()
		return status.Code(err) != codes.Unavailable
	})
	return err
}

// follow returns the first answer of a relay to a message.
func follow(t *testing.T, client wiregrpc.WatchesClient, in *wire.FollowRequest) (out *wire.FollowResponse, err error) {
	t.Helper()
	err = answered(t, func() error {
		ctx, cancel := context.WithCancel(fixture.Context(t))
		t.Cleanup(cancel)
		call, err := client.Follow(ctx)
		if err != nil {
			return err
		}
		_ = call.Send(in) // Recv has the reason of a failure
		out, err = call.Recv()
		return err
	})
	return out, err
}

// page returns the error of a relay's answer to a request for a page.
func page(t *testing.T, client wiregrpc.WatchesClient, in *wire.PageRequest) error {
	t.Helper()
	return answered(t, func() error { _, err := client.Page(t.Context(), in); return err })
}

func openRequest(id *wire.Identity, position []byte) *wire.FollowRequest {
	return &wire.FollowRequest{Ask: &wire.FollowRequest_Open{Open: &wire.Open{Identity: id, Position: position}}}
}

// A relay refuses calls without its token, of another store, and with messages that are too large or damaged, and serves its subscribers
// meanwhile.
func TestHostileCallsOfARelay(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	id := identityOf(t, s)
	open(t, s, true)
	subscriber := open(t, s, false)
	w := fixture.WatchChanges(t, subscriber)
	relay := fields(t, publishedRelays(t, openDirectory(t, s), 1)[0])

	for _, token := range []string{"", "wrong"} {
		stranger := dial(t, relay["address"], token)
		large := &wire.ProbeRequest{Process: strings.Repeat("x", 8<<20)}
		probed := answered(t, func() error { _, err := stranger.Probe(t.Context(), large); return err })
		paged := page(t, stranger, &wire.PageRequest{})
		_, followed := follow(t, stranger, openRequest(nil, nil))
		for call, err := range map[string]error{"Probe": probed, "Page": paged, "Follow": followed} {
			if status.Code(err) != codes.Unauthenticated {
				t.Errorf("%s with the token %q: got %v", call, token, err)
			}
		}
	}

	client := dial(t, relay["address"], relay["token"])
	if out, err := follow(t, client, openRequest(id, nil)); err != nil || out.GetWelcome() == nil {
		t.Fatalf("got %v and %v, expected a welcome", out, err)
	}
	history := append([]byte{byte(len(id.GetHistory()))}, id.GetHistory()...)
	for _, c := range []struct {
		name string
		in   *wire.FollowRequest
		want codes.Code
	}{
		{"no Open", &wire.FollowRequest{}, codes.FailedPrecondition},
		{"no identity", openRequest(nil, nil), codes.FailedPrecondition},
		{"another store", openRequest(&wire.Identity{StoreId: []byte("x"), History: id.GetHistory()}, nil), codes.FailedPrecondition},
		{"the stream of another table", openRequest(&wire.Identity{StoreId: id.GetStoreId(), History: strings.Replace(id.GetHistory(), "table/", "table/x", 1)}, nil), codes.FailedPrecondition},
		{"a position in another stream", openRequest(id, []byte{1, 'x', 0}), codes.FailedPrecondition},
		{"a damaged position", openRequest(id, []byte{200}), codes.InvalidArgument},
		{"a position that is too old", openRequest(id, append(history, 0)), codes.OutOfRange},
		{"a large message", openRequest(id, make([]byte, 8<<20)), codes.ResourceExhausted},
	} {
		if out, err := follow(t, client, c.in); status.Code(err) != c.want {
			t.Errorf("%s: got %v and %v, expected %v", c.name, out, err, c.want)
		}
	}
	if err := page(t, client, &wire.PageRequest{Identity: id, From: []byte{200}}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a page from a damaged position: got %v", err)
	}
	if err := page(t, client, &wire.PageRequest{}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a page of no store: got %v", err)
	}

	// Bytes that are no handshake, and bytes that are no frames.
	plain, err := net.Dial("tcp", relay["address"])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = plain.Close() }()
	encrypted, err := tls.Dial("tcp", relay["address"], &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = encrypted.Close() }()
	for _, conn := range []net.Conn{plain, encrypted} {
		for range 16 {
			if _, err := conn.Write(make([]byte, 64<<10)); err != nil {
				break // the relay has closed the connection
			}
		}
	}

	written, err := subscriber.WriteCAS(t.Context(), box("a", nil))
	if err != nil {
		t.Fatal(err)
	}
	if got := fixture.Next(t, w).GetUpsert().GetResource(); got.GetVersion() != written.GetVersion() {
		t.Errorf("got %v, expected the write", got)
	}
}

// identityOf returns what a subscriber sends to a relay of a store.
func identityOf(t *testing.T, s *dynamofake.Server) *wire.Identity {
	t.Helper()
	impostor := newImpostor(t, s, func(*wire.Open) []*wire.FollowResponse { return nil })
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	b := open(t, s, false)
	watching.Go(func() { _, _ = b.WatchList(ctx, boxType, tenancy, "") })
	opened := <-impostor.opened
	cancel()
	watching.Wait()
	fixture.Remove(t, impostor.directory, impostor.record)
	return opened.GetIdentity()
}
