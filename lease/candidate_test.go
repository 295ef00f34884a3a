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

// The environment of a candidate that is a process of its own.
const (
	candidateStore    = "LEASE_TEST_STORE"    // URL of the store
	candidateName     = "LEASE_TEST_NAME"     // who it is
	candidateCareless = "LEASE_TEST_CARELESS" // set: it does not fence what it writes, and does not stop when it has lost the lock
)

// turn is how often a candidate counts before it resigns.
const turn = 40

// counterID is the id of what the holder of the lock writes to.
var counterID = &resourcepb.ID{
	Type: &resourcepb.Type{Group: "coordination", GroupVersion: "v1", Kind: "Counter"}, Tenancy: system, Name: "job", Uid: "counter",
}

// count is what a counter says.
type count struct {
	n, epoch int64
	holder   string
}

func counted(res *resourcepb.Resource) (count, error) {
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

// serveCandidate is the process of a candidate: it campaigns, counts while it holds the lock, resigns, and begins anew, until it is killed.
// It returns false at once in other processes.
func serveCandidate() bool {
	url := os.Getenv(candidateStore)
	if url == "" {
		return false
	}
	ctx := context.Background()
	b, err := storage.Open(ctx, url)
	if err == nil {
		err = campaigns(ctx, b, os.Getenv(candidateName), os.Getenv(candidateCareless) != "")
	}
	fmt.Fprintln(os.Stderr, os.Getenv(candidateName), err)
	os.Exit(1)
	return true
}

func campaigns(ctx context.Context, b storage.Backend, name string, careless bool) error {
	e, err := lease.NewElector(b, system, "job", &lease.Options{TTL: time.Second, Holder: name})
	if err != nil {
		return err
	}
	for {
		tenure, err := e.Campaign(ctx)
		if err != nil {
			return err
		}
		for i := 0; careless || i < turn && tenure.Err() == nil; i++ {
			if err := increment(ctx, b, name, tenure, careless); err != nil && !passing(err) {
				return err
			}
			<-time.After(5 * time.Millisecond) // the pace of the work, not a wait for anything
		}
		if err := tenure.Resign(ctx); err != nil && !passing(err) {
			return err
		}
	}
}

func passing(err error) bool {
	return errors.Is(err, storage.ErrCASFailure) || errors.Is(err, storage.ErrInconsistent)
}

func increment(ctx context.Context, b storage.Backend, name string, tenure *lease.Tenure, careless bool) error {
	tx, ok := storage.As[storage.Transactor](b)
	if !ok {
		return errors.New("no storage.Transactor")
	}
	stored, err := b.Read(ctx, storage.StrongConsistency, counterID)
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		return err
	}
	last, err := counted(stored)
	if err != nil {
		return err
	}
	next, err := count{last.n + 1, tenure.Epoch(), name}.resource(stored.GetVersion())
	if err != nil {
		return err
	}
	ops := []storage.Op{tenure.Fence(), {Write: next}}
	if careless {
		ops = ops[1:]
	}
	_, err = tx.Commit(ctx, ops)
	return err
}
