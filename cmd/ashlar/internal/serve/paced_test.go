package serve

import (
	"bufio"
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
	"github.com/ashlar-dev/storage/service/web"
)

// A list over HTTP has a turn until its client has read it, and a watch until the end of its snapshot. Other lists wait.
func TestTurnsOfRequests(t *testing.T) {
	t.Parallel()
	backend := inmem.New(nil)
	t.Cleanup(func() { _ = backend.Close() })
	types := registry.NewOpen(registry.Type{})
	resources := service.New(backend, types, nil)
	data, err := anypb.New(wrapperspb.String(strings.Repeat("x", 1_000_000)))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		id := &resourcepb.ID{Type: &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Album"}, Name: strings.Repeat("a", i+1)}
		if _, err := resources.Write(t.Context(), &resourcepb.WriteRequest{Resource: &resourcepb.Resource{Id: id, Data: data}}); err != nil {
			t.Fatal(err)
		}
	}
	h := web.NewHandler(pacedClient{resources.Client()}, types, nil)
	server := httptest.NewServer(withTurn(h, newTurns(1, false), func(*http.Request) string { return "" }))
	t.Cleanup(server.Close)
	get := func(ctx context.Context, query string) (*http.Response, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/demo/v1/Album"+query, nil)
		if err != nil {
			return nil, err
		}
		return http.DefaultClient.Do(r)
	}

	open, stop := context.WithCancel(t.Context())
	defer stop()
	watch, err := get(open, "?watch&name_prefix="+strings.Repeat("a", 40))
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Body.Close()
	lines := bufio.NewReader(watch.Body)
	for line := ""; !strings.HasPrefix(line, `{"endOfSnapshot"`); {
		if line, err = lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	unread, err := get(open, "")
	if err != nil {
		t.Fatal(err)
	}
	defer unread.Body.Close()
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if got, err := get(short, ""); err == nil {
		_ = got.Body.Close() // it was not expected
		t.Error("a list was served beside an unread one, which has the only turn")
	}
	stop()
	got, err := get(t.Context(), "?limit=1")
	if err != nil {
		t.Fatal(err)
	}
	_ = got.Body.Close() // its status is enough
	if got.StatusCode != http.StatusOK {
		t.Errorf("a list after the unread one has ended: %d", got.StatusCode)
	}
}

// A request counts for the same caller, however its token is sent. Without a token it counts for the caller of anonymous calls, also over gRPC.
func TestCallersOfRequests(t *testing.T) {
	t.Parallel()
	file := save(t, "tokens.yaml", fmt.Sprintf("anonymous:\n  rules: [{types: [\"*\"], may: [read]}]\ntokens:\n  - {name: a, sha256: %x, rules: [{types: [\"*\"], may: [read]}]}\n",
		sha256.Sum256([]byte("secret"))))
	all, err := loadTokens(file)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{tokens: all}
	for want, headers := range map[string][]http.Header{
		"a": {{"Authorization": {"Bearer secret"}}, {"Authorization": {"bearer  secret"}}, {"X-Consul-Token": {"secret"}}, {"X-Consul-Token": {"", "secret"}}},
		"":  {{}, {"Authorization": {"Bearer unknown"}}, {"Authorization": {"Basic secret"}}},
	} {
		for _, header := range headers {
			if got := s.callerOf(&http.Request{Header: header}); got != want {
				t.Errorf("%v: caller %q, expected %q", header, got, want)
			}
		}
	}
	if got := (&server{}).callerOf(&http.Request{}); got != "" {
		t.Errorf("caller %q of a server without tokens", got)
	}
}

// Lists and changes of the past wait for a turn, too.
func TestTurnsOfThePast(t *testing.T) {
	t.Parallel()
	backend := inmem.New(nil)
	t.Cleanup(func() { _ = backend.Close() })
	types := registry.NewOpen(registry.Type{})
	s := &server{types: types, resources: service.New(backend, types, nil), turns: newTurns(1, false), limits: newLimits(0, 0)}
	s.setAPI()
	id := &resourcepb.ID{Type: &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Album"}, Name: "a"}
	if _, err := s.resources.Write(t.Context(), &resourcepb.WriteRequest{Resource: &resourcepb.Resource{Id: id}}); err != nil {
		t.Fatal(err)
	}
	revisions, err := s.resources.Revisions(t.Context(), &resourcepb.RevisionsRequest{Type: id.GetType(), Tenancy: &resourcepb.Tenancy{}})
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) int {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		answer := httptest.NewRecorder()
		withTurn(*s.api.Load(), s.turns, s.callerOf).ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
		return answer.Code
	}
	release, err := s.turns.take(t.Context(), "", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	for _, path := range []string{fmt.Sprintf("/demo/v1/Album?at=%d", revisions.GetNewest()), "/demo/v1/Album?changes", "/demo/v1/Album/a/history"} {
		if code := get(path); code != http.StatusGatewayTimeout {
			t.Errorf("%s beside the only turn: status %d, expected %d", path, code, http.StatusGatewayTimeout)
		}
	}
}
