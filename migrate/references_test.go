package migrate

import (
	"fmt"
	"path/filepath"
	"runtime"
	"testing"
	"weak"

	"github.com/ncruces/go-sqlite3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage/resourcepb"
)

// The columns that a database derives from resources are damaged in the target: Verify reports it, although all resources are equal.
func TestVerifyFindsWrongReferences(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]string{
		"no owner":              "UPDATE resources SET owner = NULL WHERE instr(data, CAST('child-1' AS BLOB)) > 0",
		"another group version": "UPDATE resources SET group_version = 'v9' WHERE instr(data, CAST('child-1' AS BLOB)) > 0",
		"a former child":        "UPDATE resources SET owner = (SELECT owner FROM resources WHERE owner IS NOT NULL) WHERE instr(data, CAST('orphan' AS BLOB)) > 0",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			from, to := openFile(t, filepath.Join(folder, "from.db")), openFile(t, filepath.Join(folder, "to.db"))
			owner := small("owner", "1")
			all := []*resourcepb.Resource{owner, small("orphan", "1")}
			for i := range 3 {
				child := small(fmt.Sprint("child-", i), "1")
				child.Owner = owner.Id
				all = append(all, child)
			}
			fill(t, from.Backend, all)
			if _, err := Run(limited(t), from.Backend, to.Backend, quick(Options{})); err != nil {
				t.Fatal(err)
			}
			if r, err := Verify(limited(t), from.Backend, to.Backend, nil); err != nil || !r.Equal() {
				t.Fatalf("before the damage: %v, %v", r, err)
			}
			to.close()
			db, err := sqlite3.Open(to.path)
			if err == nil {
				err = db.Exec(damage)
			}
			if err == nil {
				err = db.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
			to.open()
			var found []Difference
			r, err := Verify(limited(t), from.Backend, to.Backend, &VerifyOptions{OnDifference: func(d Difference) error {
				found = append(found, d)
				return nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			if r.Equal() || r.References != 1 || len(found) != 1 || found[0].Kind != Reference || found[0].Source != nil || found[0].Target == nil {
				t.Errorf("got %v with %v, expected one wrong reference in the target", r, found)
			}
			if r, err := Verify(limited(t), from.Backend, to.Backend, &VerifyOptions{SkipReferences: true}); err != nil || !r.Equal() {
				t.Errorf("without references: %v, %v", r, err)
			}
		})
	}
}

// The children that are still to be checked are in memory without their payloads.
func TestReferencesKeepNoPayloads(t *testing.T) {
	t.Parallel()
	child := small("child", "1")
	child.Owner = small("owner", "1").Id
	stored, err := entryOf(child)
	if err != nil {
		t.Fatal(err)
	}
	r := &references{}
	payload := func() weak.Pointer[anypb.Any] {
		e := entry{Row: stored.Row}
		if err := r.add(limited(t), &e); err != nil {
			t.Fatal(err)
		}
		return weak.Make(e.res.Data)
	}()
	for range 10 {
		runtime.GC()
	}
	if payload.Value() != nil {
		t.Error("the payload of a child is still in memory")
	}
	if r.children != 1 {
		t.Errorf("%d children, expected 1", r.children)
	}
}
