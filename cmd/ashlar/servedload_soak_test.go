//go:build soak && linux

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
)

// hostileLoad is a server with 100 MB of resources, and clients that misuse it.
type hostileLoad struct {
	*testing.T
	ctx         context.Context
	server      *serverProcess
	honest, bad string // tokens
	typ         *resourcepb.Type
	calls       sync.WaitGroup
	begun       atomic.Int64 // hostile calls
}

// maxHostileMemory bounds the memory of a server under hostile load in bytes.
const maxHostileMemory = 1 << 30

// A server stays below a bound of memory while a thousand clients send bodies that do not end, messages without a token, and do not read the
// answers to their lists and watches; it continues to serve others. Each of them begins again a second after its end. The test logs the peak of
// the server's memory, and the rate of another client before the load, while it begins, and later.
func TestHostileLoad(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	h := &hostileLoad{T: t, ctx: ctx, typ: &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Large"}}
	h.start()
	h.rate(time.Second) // what the first calls of a process cost is not counted
	before := h.rate(5 * time.Second)
	load, end := context.WithCancel(ctx)
	for i := range 10 {
		h.unreadCalls(load, strconv.Itoa(i))
	}
	h.anonymousWrites(load)
	h.trickle(load)
	begin := h.rate(2 * time.Second)
	during := h.rate(20 * time.Second)
	end()
	h.calls.Wait()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", h.server.cmd.Process.Pid))
	require.NoError(t, err)
	peak, err := strconv.Atoi(regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindStringSubmatch(string(status))[1])
	require.NoError(t, err)
	t.Logf("peak memory %d MB; an honest client has %.0f reads a second before the load, %.0f in its first two seconds (%.2f), %.0f later (%.2f)",
		peak/1000, before, begin, begin/before, during, during/before)
	t.Logf("%d hostile calls were begun", h.begun.Load())
	require.Less(t, peak<<10, maxHostileMemory)
	_, metrics := getText(t, "http://"+h.server.admin+"/metrics")
	t.Log(regexp.MustCompile(`(?m)^(ashlar_server_buffered_bytes|grpc_server_stalled_total|grpc_server_streams|ashlar_server_refusals_total).* .*$`).FindAllString(metrics, -1))
}

// start starts the server of a store with 100 MB.
func (h *hostileLoad) start() {
	url := fileURL(h.T)
	backend, err := storage.Open(h.ctx, url)
	require.NoError(h, err)
	data, err := anypb.New(wrapperspb.String(strings.Repeat("x", 250_000)))
	require.NoError(h, err)
	for i := range 400 {
		_, err := backend.WriteCAS(h.ctx, &resourcepb.Resource{Data: data, Id: &resourcepb.ID{
			Type: h.typ, Tenancy: &resourcepb.Tenancy{Partition: "default", Namespace: "default"}, Name: fmt.Sprintf("r%03d", i), Uid: "u",
		}})
		require.NoError(h, err)
	}
	require.NoError(h, backend.Close())
	var honestHash, badHash string
	h.honest, honestHash = token()
	h.bad, badHash = token()
	const rules = `rules: [{types: ["*"], may: [read, list, write]}]`
	file := write(h.T, h.TempDir(), "tokens.yaml", fmt.Sprintf("tokens:\n  - {name: honest, sha256: %s, %s}\n  - {name: bad, sha256: %s, %s}\n", honestHash, rules, badHash, rules))
	h.server = serveStore(h.T, url, "--tokens", file, "--admin", "127.0.0.1:0", "--log-level", "info")
}

// rate returns the number of reads a second of an honest client in a period of time.
func (h *hostileLoad) rate(period time.Duration) float64 {
	c := resourcegrpc.NewResourceServiceClient(dialGRPC(h.T, h.server))
	ctx := metadata.AppendToOutgoingContext(h.ctx, "x-consul-token", h.honest)
	began := time.Now()
	reads := 0
	for ; time.Since(began) < period; reads++ {
		_, err := c.Read(ctx, &resourcepb.ReadRequest{Id: &resourcepb.ID{Type: h.typ, Name: "r000"}})
		require.NoError(h, err)
	}
	return float64(reads) / time.Since(began).Seconds()
}

// again makes a hostile call, and makes it again a second after its end, until ctx ends.
func (h *hostileLoad) again(ctx context.Context, call func()) {
	h.calls.Go(func() {
		for ctx.Err() == nil {
			h.begun.Add(1)
			call()
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	})
}

// unreadCalls opens lists and watches on a connection of its own, reads none of their answers, and abandons them after five seconds.
func (h *hostileLoad) unreadCalls(ctx context.Context, name string) {
	conn, err := grpc.NewClient("passthrough:///"+h.server.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(1<<16), grpc.WithUserAgent(name))
	require.NoError(h, err)
	h.Cleanup(func() { conn.Close() })
	ctx = metadata.AppendToOutgoingContext(ctx, "x-consul-token", h.bad)
	open := func(method string, request any) {
		h.again(ctx, func() {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
			if err == nil {
				err = stream.SendMsg(request)
			}
			if err == nil {
				err = stream.CloseSend()
			}
			if err == nil {
				<-stream.Context().Done()
			}
		})
	}
	tenancy := &resourcepb.Tenancy{Partition: "default", Namespace: "default"}
	for range 20 {
		open(resourcegrpc.ResourceService_List_FullMethodName, &resourcepb.ListRequest{Type: h.typ, Tenancy: tenancy})
		open(resourcegrpc.ResourceService_List_FullMethodName, &resourcepb.ListRequest{Type: h.typ, Tenancy: tenancy, Limit: 1000})
	}
	for range 50 {
		open(resourcegrpc.ResourceService_WatchList_FullMethodName, &resourcepb.WatchListRequest{Type: h.typ})
	}
}

// anonymousWrites sends compressed messages without a token.
func (h *hostileLoad) anonymousWrites(ctx context.Context) {
	c := resourcegrpc.NewResourceServiceClient(dialGRPC(h.T, h.server))
	data, err := anypb.New(wrapperspb.String(strings.Repeat("y", 4_000_000)))
	require.NoError(h, err)
	request := &resourcepb.WriteRequest{Resource: &resourcepb.Resource{Data: data}}
	for range 10 {
		h.again(ctx, func() {
			_, err := c.Write(ctx, request, grpc.UseCompressor(gzip.Name))
			assert.Error(h, err)
		})
	}
}

// trickle begins bodies with a valid token that never end.
func (h *hostileLoad) trickle(ctx context.Context) {
	for range 100 {
		h.again(ctx, func() {
			conn, err := net.Dial("tcp", h.server.http)
			if err != nil {
				return
			}
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			defer conn.Close()
			_, err = fmt.Fprintf(conn, "PUT /api/demo/v1/Large/a HTTP/1.1\r\nHost: localhost\r\nX-Consul-Token: %s\r\nContent-Length: 4000000\r\n\r\n{", h.bad)
			if err == nil {
				_, _ = io.Copy(io.Discard, conn) // ends when the server closes the connection
			}
		})
	}
}
