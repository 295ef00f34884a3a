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
		return driver.StoreID{}, fmt.Errorf("another program uses the prefix: its store key contains %.100q, expected \"ashlar\", a schema version and an id", value)
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

// identify reads the id of the store and the position of the revocation. It creates the store if there is none, unless Options.NoCreate is
// set.
func identify(ctx context.Context, c *conn, r *revocation) (driver.StoreID, error) {
	var fresh driver.StoreID
	_, _ = rand.Read(fresh[:]) // never fails
	storeKey := []byte(c.layout.storeKey())
	create := opPut(storeKey, []byte(storeValue(fresh)))
	if c.opts.NoCreate {
		create = opGet(storeKey)
	}
	resp, err := retry(ctx, c.retries, func(ctx context.Context) (*pb.TxnResponse, error) {
		return c.txn(ctx, &pb.TxnRequest{
			Compare: []*pb.Compare{compareRevision(storeKey, 0)},
			Success: []*pb.RequestOp{create, r.get()},
			Failure: []*pb.RequestOp{opGet(storeKey), r.get()},
		})
	})
	if err != nil {
		return driver.StoreID{}, err
	}
	c.recordRevision(resp.Header.Revision)
	if kv := first(resp.Responses[1].GetResponseRange().Kvs); kv != nil {
		r.learn(kv.ModRevision)
	}
	if resp.Succeeded && c.opts.NoCreate {
		return driver.StoreID{}, fmt.Errorf("%w: there is none under the prefix %q, and create=off forbids creating one", storage.ErrNoStore, c.opts.Prefix)
	}
	if resp.Succeeded {
		return fresh, nil
	}
	return storeIn(resp.Responses[0].GetResponseRange())
}

func storeIn(answer *pb.RangeResponse) (driver.StoreID, error) {
	kv := first(answer.GetKvs())
	if kv == nil {
		return driver.StoreID{}, errors.New("the store has been deleted")
	}
	return parseStore(string(kv.Value))
}
