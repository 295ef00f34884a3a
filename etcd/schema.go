package etcd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// schemaVersion is the schema version of a new store. A change that older programs cannot read or write increases it.
const schemaVersion = 1

// storeValue is "ashlar <schema version> <store id>".
func storeValue(id driver.StoreID) string {
	return fmt.Sprintf("ashlar %d %s", schemaVersion, hex.EncodeToString(id[:]))
}

func parseStore(value string) (driver.StoreID, error) {
	fields := strings.Fields(value)
	if len(fields) < 2 || fields[0] != "ashlar" {
		return driver.StoreID{}, errors.New("the key of the store under the prefix holds another value than a store's")
	}
	version, err := strconv.Atoi(fields[1])
	switch {
	case err != nil:
		return driver.StoreID{}, errors.New("the store's schema version is not a number")
	case version > schemaVersion:
		return driver.StoreID{}, fmt.Errorf("%w: the store has schema version %d, this program supports %d", storage.ErrNewerSchema, version, schemaVersion)
	case len(fields) < 3:
		return driver.StoreID{}, errors.New("the store has no id")
	}
	id, err := hex.DecodeString(fields[2])
	if err != nil || len(id) != len(driver.StoreID{}) {
		return driver.StoreID{}, errors.New("the store's id is malformed")
	}
	return driver.StoreID(id), nil
}

// identify reads the id of the store. It creates the store if there is none, unless Options.NoCreate is set.
func (b *handle) identify(ctx context.Context) error {
	var fresh driver.StoreID
	_, _ = rand.Read(fresh[:]) // never fails
	storeKey := []byte(b.layout.storeKey())
	create := opPut(storeKey, []byte(storeValue(fresh)))
	if b.opts.NoCreate {
		create = opGet(storeKey)
	}
	resp, err := retry(ctx, func(ctx context.Context) (*pb.TxnResponse, error) {
		return b.txn(ctx, &pb.TxnRequest{
			Compare: []*pb.Compare{compareRevision(storeKey, 0)},
			Success: []*pb.RequestOp{create, b.fence.get()},
			Failure: []*pb.RequestOp{opGet(storeKey), b.fence.get()},
		})
	})
	if err != nil {
		return err
	}
	b.recordRevision(resp.Header.Revision)
	if kv := first(resp.Responses[1].GetResponseRange().Kvs); kv != nil {
		b.fence.learn(kv.ModRevision)
	}
	if resp.Succeeded && b.opts.NoCreate {
		return fmt.Errorf("there is no store under the prefix %q, and create is off", b.opts.Prefix)
	}
	if resp.Succeeded {
		b.layout.store = fresh
		return nil
	}
	b.layout.store, err = storeIn(resp.Responses[0].GetResponseRange())
	return err
}

func storeIn(answer *pb.RangeResponse) (driver.StoreID, error) {
	kv := first(answer.GetKvs())
	if kv == nil {
		return driver.StoreID{}, errors.New("the store has been deleted")
	}
	return parseStore(string(kv.Value))
}
