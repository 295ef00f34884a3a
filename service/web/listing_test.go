package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
	"github.com/ashlar-dev/storage/service/registry"
	"github.com/ashlar-dev/storage/service/web"
)

// pageClient records the sizes of the pages that it lists, and fails at a page.
type pageClient struct {
	resourcegrpc.ResourceServiceClient
	failAt int // 0 for never

	mu    sync.Mutex
	sizes []int
}

func (c *pageClient) List(ctx context.Context, in *resourcepb.ListRequest, o ...grpc.CallOption) (*resourcepb.ListResponse, error) {
	out, err := c.ResourceServiceClient.List(ctx, in, o...)
	return out, c.page(proto.Size(out), err)
}

func (c *pageClient) ListByOwner(ctx context.Context, in *resourcepb.ListByOwnerRequest, o ...grpc.CallOption) (*resourcepb.ListByOwnerResponse, error) {
	out, err := c.ResourceServiceClient.ListByOwner(ctx, in, o...)
	return out, c.page(proto.Size(out), err)
}

func (c *pageClient) page(size int, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sizes = append(c.sizes, size); len(c.sizes) == c.failAt {
		return errors.New("the store has failed")
	}
	return err
}

// fillLarge stores an owner and a number of large resources that it owns.
func fillLarge(t *testing.T, s *site, count int) {
	t.Helper()
	data, err := anypb.New(wrapperspb.String(strings.Repeat("x", 900_000)))
	require.NoError(t, err)
	tenancy := &resourcepb.Tenancy{Partition: "default", Namespace: "default"}
	owner := &resourcepb.ID{Type: typeOf("Album"), Tenancy: tenancy, Name: "owner", Uid: "u"}
	_, err = s.backend.WriteCAS(t.Context(), &resourcepb.Resource{Id: owner})
	require.NoError(t, err)
	for i := range count {
		id := &resourcepb.ID{Type: typeOf("Record"), Tenancy: tenancy, Name: fmt.Sprintf("r%03d", i), Uid: "u"}
		_, err := s.backend.WriteCAS(t.Context(), &resourcepb.Resource{Id: id, Owner: owner, Data: data})
		require.NoError(t, err)
	}
}

// A list without a limit is sent page by page, so that the server holds one page. If a page fails, the answer is cut off.
func TestListsAreSentInPages(t *testing.T) {
	t.Parallel()
	types := registry.NewOpen(registry.Type{})
	s := memorySite(t, types, nil)
	const count = 10
	fillLarge(t, s, count)
	for _, path := range []string{"/demo/v1/Record", "/demo/v1/Album/owner/owned"} {
		client := &pageClient{ResourceServiceClient: s.client}
		server := httptest.NewServer(web.NewHandler(client, types, nil))
		t.Cleanup(server.Close)
		got, err := http.Get(server.URL + path)
		require.NoError(t, err)
		defer got.Body.Close()
		var answer map[string]json.RawMessage
		require.NoError(t, json.NewDecoder(got.Body).Decode(&answer))
		var listed []json.RawMessage
		require.NoError(t, json.Unmarshal(answer["resources"], &listed))
		require.Len(t, listed, count, path)
		require.Len(t, answer, 1, "%s: the whole list has no position to continue at", path)
		require.Greater(t, len(client.sizes), 2, path)
		for _, size := range client.sizes {
			require.Less(t, size, 4<<20, path)
		}

		client.failAt = len(client.sizes) + 2
		got, err = http.Get(server.URL + path)
		require.NoError(t, err)
		defer got.Body.Close()
		_, err = io.ReadAll(got.Body)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%s: a list that failed looks complete", path)
	}
}

// A client that does not read its list is disconnected.
func TestUnreadLists(t *testing.T) {
	t.Parallel()
	types := registry.NewOpen(registry.Type{})
	s := memorySite(t, types, nil)
	fillLarge(t, s, 64)
	h := web.WithStallTimeout(web.NewHandler(s.client, types, nil), 50*time.Millisecond)
	ended := make(chan any, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { ended <- recover() }()
		h.ServeHTTP(w, r)
	}))
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer func() {
		conn.Close()
		server.Close()
	}()
	_, err = fmt.Fprint(conn, "GET /demo/v1/Record HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	select {
	case cause := <-ended:
		require.Equal(t, http.ErrAbortHandler, cause)
	case <-time.After(time.Minute):
		t.Fatal("the server holds the list of a client that does not read")
	}
}
