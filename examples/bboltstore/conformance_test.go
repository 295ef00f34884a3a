package bboltstore

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/conformance"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

func TestConformance(t *testing.T) {
	var stores sync.Map // the path of each case's store
	conformance.Run(t, conformance.Harness{
		URL: func(t testing.TB) string {
			path := filepath.Join(t.TempDir(), "store.db")
			stores.Store(t.Name(), path)
			return "bbolt:" + path
		},
		Backup: func(t testing.TB, _ storage.Backend) func() storage.Backend {
			path, _ := stores.Load(t.Name())
			backup := copyOf(t, path.(string))
			return func() storage.Backend { return opened(t, backup, nil) }
		},
		Replace: func(t testing.TB, storeURL string, id *resourcepb.ID, data []byte) {
			if err := fileAt(strings.TrimPrefix(storeURL, "bbolt:")).replace(id, data); err != nil {
				t.Fatal(err)
			}
		},
		NoHistorian: "the log has no index by key",
		NoMover:     "the example has neither notes nor a fence",
	})
}

// copyOf copies the file of an open store.
func copyOf(t testing.TB, path string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy.db")
	if err := fileAt(path).view(func(tx *bolt.Tx) error { return tx.CopyFile(to, 0o600) }); err != nil {
		t.Fatal(err)
	}
	return to
}

// replace replaces the encoded resource under a key, as a change of the log.
func (f *file) replace(id *resourcepb.ID, data []byte) error {
	defer f.wakeReaders()
	return f.db.Update(func(tx *bolt.Tx) error {
		t, number, k := txn{Tx: tx}, after(newest(tx)), key.Of(id).Bytes()
		row := encodeRow(fmt.Sprint("damage-", number), data)
		t.put(resourcesBucket, k, row)
		t.log(append(encodeNumber(number), k...), append(binary.BigEndian.AppendUint64([]byte{written}, 0), row...))
		return t.err
	})
}

func opened(t testing.TB, path string, o *Options) *Backend {
	t.Helper()
	b, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// fileAt returns the open file of a store.
func fileAt(path string) *file {
	filesMu.Lock()
	defer filesMu.Unlock()
	return files[path]
}
