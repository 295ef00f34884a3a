package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage/etcdserver"
	"github.com/ashlar-dev/storage/inmem"
)

// inProcess returns a client of a new server in the process.
func inProcess(t *testing.T) *connection {
	t.Helper()
	backend := inmem.New(nil)
	t.Cleanup(func() { _ = backend.Close() })
	server, err := etcdserver.New(backend, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	c := newConnection(server)
	t.Cleanup(c.close)
	return c
}

// The watch client of etcd sends and receives in one goroutine. However many watches begin during events, none blocks forever.
func TestManyWatchesBeginWhileEventsCome(t *testing.T) {
	t.Parallel()
	c := inProcess(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	const watches, writes = 400, 100
	first, err := c.KV.Put(ctx, "k", "first")
	if err != nil {
		t.Fatal(err)
	}
	writer := make(chan error, 1)
	go func() {
		for i := range writes {
			if _, err := c.KV.Put(ctx, "k", fmt.Sprint(i)); err != nil {
				writer <- err
				return
			}
		}
		writer <- nil
	}()
	channels := make([]clientv3.WatchChan, watches)
	for i := range channels {
		channels[i] = c.Watcher.Watch(ctx, "k", clientv3.WithRev(first.Header.Revision))
	}
	if err := <-writer; err != nil {
		t.Fatal(err)
	}
	for i, channel := range channels {
		for got := 0; got < writes+1; {
			answer, ok := <-channel
			if err := answer.Err(); !ok || err != nil {
				t.Fatalf("watch %d ended after %d events: %v", i, got, err)
			}
			got += len(answer.Events)
		}
	}
}

// Closing a client ends the server's sends, even if the client does not receive them and the call was not cancelled.
func TestCloseEndsStreams(t *testing.T) {
	t.Parallel()
	life, end := context.WithCancel(t.Context())
	all := &streams{clientCtx: life}
	ended := make(chan error, 1)
	_, err := startStream(context.Background(), all, func(end *serverEnd[int, int]) error {
		for {
			if err := end.Send(new(int)); err != nil {
				ended <- err
				return err
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	end()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the server could not send: %v, want that the call was cancelled", err)
		}
	case <-time.After(3 * time.Minute):
		t.Fatal("the server still sends, a minute after the client's end")
	}
	all.close()
}

// A stream delivers requests and responses in order, the end of each side, and the error of the server after its last response.
func TestStream(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	all := &streams{clientCtx: t.Context()}
	client, err := startStream(t.Context(), all, func(end *serverEnd[int, int]) error {
		sum := 0
		for {
			n, err := end.Recv()
			if errors.Is(err, io.EOF) {
				return boom
			}
			if err != nil {
				return err
			}
			sum += *n
			answer := sum
			if err := end.Send(&answer); err != nil {
				return err
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	const n = 10 * responseBuffer // more than the response buffer: requests are queued without blocking
	for i := range n {
		if err := client.Send(&i); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.CloseSend(); err != nil {
		t.Fatal(err)
	}
	want := 0
	for i := range n {
		want += i
		if got, err := client.Recv(); err != nil || *got != want {
			t.Fatalf("response %d is %v, %v, want %d", i, got, err, want)
		}
	}
	for range 2 {
		if _, err := client.Recv(); !errors.Is(err, boom) {
			t.Fatalf("after the last response: %v, want the server's error", err)
		}
	}
	if err := client.Send(new(int)); !errors.Is(err, io.EOF) {
		t.Errorf("a request after the end: %v, want io.EOF", err)
	}
	all.close()
}

// Goroutines of a closed server may still send to its watches: they get an error, and the client receives the earlier responses.
func TestServerSendsAfterItsEnd(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	late := make(chan error, 1)
	all := &streams{clientCtx: t.Context()}
	client, err := startStream(t.Context(), all, func(end *serverEnd[int, int]) error {
		for i := range responseBuffer {
			if err := end.Send(&i); err != nil {
				return err
			}
		}
		go func() { late <- end.Send(new(int)) }()
		return boom
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-late; !errors.Is(err, context.Canceled) {
		t.Errorf("a response after the end: %v, want that the call is over", err)
	}
	for i := range responseBuffer {
		if got, err := client.Recv(); err != nil || *got != i {
			t.Fatalf("response %d is %v, %v", i, got, err)
		}
	}
	if _, err := client.Recv(); !errors.Is(err, boom) {
		t.Errorf("after the last response: %v, want the server's error", err)
	}
	all.close()
}

// A list during the close of a client is rejected, and does not block it.
func TestListsWhileClientCloses(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for range 100 {
		c := inProcess(t)
		var lists sync.WaitGroup
		for range 8 {
			lists.Go(func() {
				for {
					answers, err := c.KV.GetStream(ctx, "k")
					if err != nil {
						if status.Code(err) != codes.Canceled {
							t.Errorf("a list of a closed client: %v, want that it is cancelled", err)
						}
						return
					}
					for range answers {
					}
				}
			})
		}
		c.close()
		lists.Wait()
	}
}
