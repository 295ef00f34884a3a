package lease_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/lease"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Environment variables of a candidate process.
const (
	candidateStore    = "LEASE_TEST_STORE"    // URL of the store
	candidateName     = "LEASE_TEST_NAME"     // the candidate's name
	candidateUnfenced = "LEASE_TEST_UNFENCED" // if set, the candidate does not fence its writes and continues after it has lost the lock
)

// tenureIncrements is how often a candidate increments the counter before it resigns.
const tenureIncrements = 40

// counterID is the id of the counter that the holder of the lock increments.
var counterID = &resourcepb.ID{
	Type: &resourcepb.Type{Group: "coordination", GroupVersion: "v1", Kind: "Counter"}, Tenancy: system, Name: "job", Uid: "counter",
}

// count is the content of the counter.
type count struct {
	n, epoch int64
	holder   string
}

func decodeCount(res *resourcepb.Resource) (count, error) {
	fields := &structpb.Struct{}
	if res == nil {
		return count{}, nil
	}
	if err := res.GetData().UnmarshalTo(fields); err != nil {
		return count{}, err
	}
	f := fields.GetFields()
	return count{int64(f["n"].GetNumberValue()), int64(f["epoch"].GetNumberValue()), f["holder"].GetStringValue()}, nil
}

func (c count) resource(version string) (*resourcepb.Resource, error) {
	fields, err := structpb.NewStruct(map[string]any{"n": c.n, "epoch": c.epoch, "holder": c.holder})
	if err != nil {
		return nil, err
	}
	data, err := anypb.New(fields)
	return &resourcepb.Resource{Id: proto.CloneOf(counterID), Version: version, Data: data}, err
}

// serveCandidate is the main function of a candidate process. It campaigns, increments the counter while it holds the lock, resigns, and repeats
// until it is killed. It returns false immediately in other processes.
func serveCandidate() bool {
	url := os.Getenv(candidateStore)
	if url == "" {
		return false
	}
	ctx := context.Background()
	b, err := storage.Open(ctx, url)
	if err == nil {
		err = runCandidate(ctx, b, os.Getenv(candidateName), os.Getenv(candidateUnfenced) != "")
	}
	fmt.Fprintln(os.Stderr, os.Getenv(candidateName), err)
	os.Exit(1)
	return true
}

func runCandidate(ctx context.Context, b storage.Backend, name string, unfenced bool) error {
	e, err := lease.NewElector(b, system, "job", &lease.Options{TTL: time.Second, Holder: name})
	if err != nil {
		return err
	}
	for {
		tenure, err := e.Campaign(ctx)
		if err != nil {
			return err
		}
		for i := 0; unfenced || i < tenureIncrements && tenure.Err() == nil; i++ {
			if err := increment(ctx, b, name, tenure, unfenced); err != nil && !isTransient(err) {
				return err
			}
			<-time.After(5 * time.Millisecond) // simulated work
		}
		if err := tenure.Resign(ctx); err != nil && !isTransient(err) {
			return err
		}
	}
}

func isTransient(err error) bool {
	return errors.Is(err, storage.ErrCASFailure) || errors.Is(err, storage.ErrInconsistent)
}

func increment(ctx context.Context, b storage.Backend, name string, tenure *lease.Tenure, unfenced bool) error {
	tx, ok := storage.As[storage.Transactor](b)
	if !ok {
		return errors.New("no storage.Transactor")
	}
	stored, err := b.Read(ctx, storage.StrongConsistency, counterID)
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		return err
	}
	last, err := decodeCount(stored)
	if err != nil {
		return err
	}
	next, err := count{last.n + 1, tenure.Epoch(), name}.resource(stored.GetVersion())
	if err != nil {
		return err
	}
	ops := []storage.Op{tenure.Fence(), {Write: next}}
	if unfenced {
		ops = ops[1:]
	}
	_, err = tx.Commit(ctx, ops)
	return err
}
