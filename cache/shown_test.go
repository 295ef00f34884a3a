package cache_test

import (
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/storetest"
)

// A deletion of another uid, or of none, deletes nothing, though its version is stored.
func TestDeletionOfAnotherUid(t *testing.T) {
	t.Parallel()
	v := newValve(t)
	c := over(t, v, nil)
	a := storetest.Write(t, c, storetest.Resource("a", "1"))
	want(t, "a strong read", shows(t, c, strong, "a"), "1")
	defer v.hold()()
	for _, uid := range []string{"", "another"} {
		id := storetest.ID("a")
		id.Uid = uid
		if err := c.DeleteCAS(t.Context(), id, a.GetVersion()); err != nil {
			t.Fatal(err)
		}
		want(t, "a read after the deletion", shows(t, c, eventual, "a"), "1")
		tx, _ := storage.As[storage.Transactor](storage.Backend(c))
		if _, err := tx.Commit(t.Context(), []storage.Op{{Delete: id, Version: a.GetVersion()}}); err != nil {
			t.Fatal(err)
		}
		want(t, "a read after the transaction", shows(t, c, eventual, "a"), "1")
	}
}
