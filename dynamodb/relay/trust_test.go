package relay_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/dynamodb"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/internal/wire"
	"github.com/ashlar-dev/storage/internal/wire/wiregrpc"
	"github.com/ashlar-dev/storage/resourcepb"
)

// openDirectory opens the store of the relays' addresses.
func openDirectory(t *testing.T, s *dynamofake.Server) *dynamodb.Backend {
	t.Helper()
	db, streams := s.Clients(t)
	b, err := dynamodb.New(t.Context(), db, streams, &dynamodb.Options{Table: dynamofake.Table, Prefix: "test\x01relays", Buckets: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// publishedRelays waits until a number of relays have published their addresses.
func publishedRelays(t *testing.T, directory *dynamodb.Backend, n int) (relays []*resourcepb.Resource) {
	t.Helper()
	fixture.Eventually(t, "published relays", func() bool {
		var err error
		relays, err = directory.List(t.Context(), storage.StrongConsistency, storage.UnversionedType{Group: "relay", Kind: "Relay"}, &resourcepb.Tenancy{}, "")
		if err != nil {
			t.Fatal(err)
		}
		return len(relays) == n
	})
	return relays
}

// fields returns the content of a published record.
func fields(t *testing.T, res *resourcepb.Resource) map[string]string {
	t.Helper()
	content, texts := &structpb.Struct{}, map[string]string{}
	if err := res.GetData().UnmarshalTo(content); err != nil {
		t.Fatal(err)
	}
	for name, value := range content.GetFields() {
		texts[name] = value.GetStringValue()
	}
	return texts
}

// publish writes a record of a relay.
func publish(t *testing.T, directory *dynamodb.Backend, res *resourcepb.Resource, texts map[string]string) *resourcepb.Resource {
	t.Helper()
	content := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for name, text := range texts {
		content.Fields[name] = structpb.NewStringValue(text)
	}
	var err error
	if res.Data, err = anypb.New(content); err != nil {
		t.Fatal(err)
	}
	return fixture.Write(t, directory, res)
}

// A process that listens at the address of a relay, but does not have its key, is no relay. The process is no candidate: one that loses its lease
// and becomes a relay again would publish its own key.
func TestKeyOfAnotherProcess(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b, err := openURL(t, s, "&outage=1s")
	if err != nil {
		t.Fatal(err)
	}
	i := newImpostor(t, s, func(in *wire.Open) []*wire.FollowResponse { return []*wire.FollowResponse{welcome(in)} })
	// On a busy machine, an outage can pass before the process answers.
	watch := func() error {
		w, err := b.WatchList(t.Context(), boxType, tenancy, "")
		if err == nil {
			w.Close()
		}
		return err
	}
	texts := fields(t, i.record)
	key := texts["key"]
	texts["key"] = strings.Repeat("0", len(key))
	i.record = publish(t, i.directory, i.record, texts)
	fixture.Eventually(t, "the error names the key", func() bool {
		err := watch()
		if err == nil {
			t.Fatal("a watch was opened although the process has another key")
		}
		return strings.Contains(err.Error(), "key differs from the published key")
	})
	select {
	case <-i.opened:
		t.Error("a process with another key received a call")
	default:
	}
	texts["key"] = key
	publish(t, i.directory, i.record, texts)
	fixture.Eventually(t, "the process with the published key is a relay", func() bool { return watch() == nil })
}

// certificate writes a certificate of 127.0.0.1 that has signed itself, and returns its hash.
func certificate(t *testing.T) (certFile, keyFile, keyHash string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	dir, sum := t.TempDir(), sha256.Sum256(public)
	save := func(name, kind string, b []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	return save("cert.pem", "CERTIFICATE", der), save("key.pem", "PRIVATE KEY", private), hex.EncodeToString(sum[:])
}

// With relay-ca, the certificate of a relay must lead to the authority; the key in the table does not count.
func TestCertificatesOfAnAuthority(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	cert, key, _ := certificate(t)
	other, _, _ := certificate(t)
	escaped := url.QueryEscape(cert)
	if _, err := openURL(t, s, relayParams+"&relay-cert="+escaped+"&relay-key="+url.QueryEscape(key)+"&relay-ca="+escaped); err != nil {
		t.Fatal(err)
	}
	b, err := openURL(t, s, "&relay-ca="+escaped)
	if err != nil {
		t.Fatal(err)
	}
	fixture.WatchChanges(t, b)
	stranger, err := openURL(t, s, "&outage=5s&relay-ca="+url.QueryEscape(other))
	if err != nil {
		t.Fatal(err)
	}
	// On a busy machine, an outage can pass before the relay has published its address, or before it answers.
	fixture.Eventually(t, "the error names the certificate", func() bool {
		w, err := stranger.WatchList(t.Context(), boxType, tenancy, "")
		if err == nil {
			w.Close()
			t.Fatal("a watch was opened although the relay's certificate is of an unknown authority")
		}
		return strings.Contains(err.Error(), "certificate")
	})
}

// impostor answers subscribers with the messages of a test, although it reads no stream.
type impostor struct {
	wiregrpc.UnimplementedWatchesServer
	messages  func(*wire.Open) []*wire.FollowResponse
	opened    chan *wire.Open
	directory *dynamodb.Backend
	record    *resourcepb.Resource // in the directory
}

func (i *impostor) Follow(call grpc.BidiStreamingServer[wire.FollowRequest, wire.FollowResponse]) error {
	in, err := call.Recv()
	if err != nil {
		return err
	}
	select {
	case i.opened <- in.GetOpen():
	default:
	}
	for _, out := range i.messages(in.GetOpen()) {
		if err := call.Send(out); err != nil {
			return err
		}
	}
	return nil
}

// welcome is the answer of a relay that has no history.
func welcome(in *wire.Open) *wire.FollowResponse {
	position := append([]byte{byte(len(in.GetIdentity().GetHistory()))}, in.GetIdentity().GetHistory()...)
	return &wire.FollowResponse{Answer: &wire.FollowResponse_Welcome{Welcome: &wire.Welcome{Identity: in.GetIdentity(), Position: append(position, 0)}}}
}

// newImpostor publishes an impostor as a relay of the store.
func newImpostor(t *testing.T, s *dynamofake.Server, messages func(*wire.Open) []*wire.FollowResponse) *impostor {
	t.Helper()
	cert, key, keyHash := certificate(t)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	i := &impostor{messages: messages, opened: make(chan *wire.Open, 1)}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13})))
	wiregrpc.RegisterWatchesServer(server, i)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	i.directory = openDirectory(t, s)
	i.record = publish(t, i.directory, &resourcepb.Resource{Id: &resourcepb.ID{
		Uid: "impostor", Name: "1", Tenancy: &resourcepb.Tenancy{}, Type: &resourcepb.Type{Group: "relay", GroupVersion: "v1", Kind: "Relay"},
	}}, map[string]string{"process": "impostor", "address": listener.Addr().String(), "key": keyHash})
	return i
}

// A subscriber refuses messages about another stream, and messages that it cannot decode. Its watches end after the outage.
func TestMessagesOfAnImpostor(t *testing.T) {
	t.Parallel()
	batch := func(b *wire.Batch) *wire.FollowResponse {
		return &wire.FollowResponse{Answer: &wire.FollowResponse_Batch{Batch: b}}
	}
	elsewhere := []byte{1, 'x', 0} // a position in another stream
	for _, c := range []struct {
		name, want string
		messages   func(*wire.Open) []*wire.FollowResponse
	}{
		{"another stream", "another stream", func(in *wire.Open) []*wire.FollowResponse {
			out := welcome(in)
			out.GetWelcome().Identity = &wire.Identity{StoreId: in.GetIdentity().GetStoreId(), History: "x"}
			return []*wire.FollowResponse{out}
		}},
		{"another store", "another store", func(in *wire.Open) []*wire.FollowResponse {
			out := welcome(in)
			out.GetWelcome().Identity = &wire.Identity{StoreId: []byte("x"), History: in.GetIdentity().GetHistory()}
			return []*wire.FollowResponse{out}
		}},
		{"position in another stream", "another stream", func(in *wire.Open) []*wire.FollowResponse {
			out := welcome(in)
			out.GetWelcome().Position = elsewhere
			return []*wire.FollowResponse{out}
		}},
		{"damaged position", "decode the position", func(in *wire.Open) []*wire.FollowResponse {
			out := welcome(in)
			out.GetWelcome().Position = []byte{200}
			return []*wire.FollowResponse{out}
		}},
		{"damaged tree", "decode the shards", func(in *wire.Open) []*wire.FollowResponse {
			out := welcome(in)
			out.GetWelcome().Tree = []byte{200}
			return []*wire.FollowResponse{out}
		}},
		{"batch before the welcome", "before its welcome", func(*wire.Open) []*wire.FollowResponse {
			return []*wire.FollowResponse{batch(&wire.Batch{Base: elsewhere, End: elsewhere})}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := dynamofake.New(t)
			b, err := openURL(t, s, "&outage=1s")
			if err != nil {
				t.Fatal(err)
			}
			newImpostor(t, s, c.messages)
			// On a busy machine, an outage can pass before the impostor answers.
			fixture.Eventually(t, "the error names "+c.want, func() bool {
				_, err := b.WatchList(t.Context(), boxType, tenancy, "")
				if err == nil {
					t.Fatal("a watch was opened")
				}
				return strings.Contains(err.Error(), c.want)
			})
		})
	}
	for name, b := range map[string]*wire.Batch{
		"batch of another stream": {Base: elsewhere, End: elsewhere}, "damaged batch": {Base: []byte{200}},
		"event without a key": {Base: elsewhere, End: elsewhere, Events: []*wire.Event{{}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := dynamofake.New(t)
			subscriber, err := openURL(t, s, "&outage=1s")
			if err != nil {
				t.Fatal(err)
			}
			newImpostor(t, s, func(in *wire.Open) []*wire.FollowResponse { return []*wire.FollowResponse{welcome(in), batch(b)} })
			w, err := subscriber.WatchList(t.Context(), boxType, tenancy, "")
			if err == nil { // the welcome was accepted
				defer w.Close()
			}
			for err == nil {
				_, err = w.Next(fixture.Context(t))
			}
			if !strings.Contains(err.Error(), "no relay") {
				t.Errorf("got %v, expected the end of the watch", err)
			}
		})
	}
}
