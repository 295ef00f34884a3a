//go:build integration && soak

package soak

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/faultproxy"
	"github.com/ashlar-dev/storage/resourcepb"
)

// trouble misbehaves until the time is over: on the connections through the proxy and, now and then, with the server itself.
type trouble struct {
	proxy  *faultproxy.Proxy
	server []func() // what can befall the server
	random *rand.Rand
	probe  storage.Backend
	faults int
}

func (f *trouble) run(t *testing.T, end <-chan time.Time) {
	t.Helper()
	defer f.proxy.Resume()
	for {
		select {
		case <-end:
			return
		case <-time.After(f.upTo(450 * time.Millisecond)):
		}
		f.breathe()
		f.faults++
		key := []byte(keyName(f.random.IntN(keys)))
		switch chance := f.random.IntN(100); {
		case chance < 12:
			f.proxy.Cut()
		case chance < 36:
			f.proxy.CutAnswer(key)
		case chance < 48:
			f.proxy.CutRequest(key)
		case chance < 60:
			f.proxy.CutAnswer(key)
			f.proxy.CutAnswerAfter([]byte("key-"))
		case chance < 78:
			f.proxy.Refuse()
			<-time.After(f.upTo(300 * time.Millisecond))
			f.proxy.Resume()
		case chance < 97 || len(f.server) == 0:
			f.proxy.Stall()
			<-time.After(f.upTo(600 * time.Millisecond))
			f.proxy.Resume()
		default:
			f.server[f.random.IntN(len(f.server))]()
		}
	}
}

// breathe leaves as much time without a fault as a client takes for some answers, however busy this machine is.
func (f *trouble) breathe() {
	ctx, cancel := context.WithTimeout(context.Background(), stuck)
	defer cancel()
	for range 3 {
		_, err := f.probe.Read(ctx, storage.StrongConsistency, &resourcepb.ID{Type: &resourcepb.Type{Group: "soak", GroupVersion: "v1", Kind: "Probe"}, Tenancy: tenancy, Name: "probe", Uid: "probe"})
		if !errors.Is(err, storage.ErrNotFound) {
			return
		}
	}
}

func (f *trouble) upTo(d time.Duration) time.Duration {
	return time.Duration(f.random.Int64N(int64(d)))
}
