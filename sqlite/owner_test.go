package sqlite

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// queryPlan returns SQLite's plan of a statement.
func queryPlan(t *testing.T, path string, statement string) string {
	t.Helper()
	db := openDirect(t, path)
	s, _, err := db.Prepare("EXPLAIN QUERY PLAN " + statementText(statement))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var plan []string
	for s.Step() {
		plan = append(plan, s.ColumnText(3))
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(plan, "; ")
}

func checkOwnerIndex(t *testing.T, path string) {
	t.Helper()
	if plan := queryPlan(t, path, "list-owned"); plan != "SEARCH resources USING COVERING INDEX resources_owned (owner=?)" {
		t.Errorf("the plan of the query is %s, expected a search of the covering index resources_owned", plan)
	}
}

// Queries of owner references read the index of owners only. A lookup of each child would be slower in a larger store.
func TestOwnerQueriesUseIndex(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	open(t, path, nil)
	checkOwnerIndex(t, path)
	if plan := queryPlan(t, path, "update-resource"); strings.Contains(plan, "owned") {
		t.Errorf("an update uses the index of owners: %s", plan)
	}
}

// The index follows a child whose owner, group version, both or neither change.
func TestOwnerChanges(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), nil)
	owners := []string{"", "one", "two"}
	child, version := resource("child", 0), ""
	for step := range 40 {
		child.Version, child.Owner = version, nil
		current := owners[step/2%3]
		if current != "" {
			child.Owner = idOf(current)
		}
		child.Id.Type.GroupVersion = fmt.Sprint("v", step%5/2)
		version = fixture.Write(t, s, child).Version
		for _, owner := range owners[1:] {
			ids, err := s.OwnerReferences(t.Context(), idOf(owner))
			if err != nil {
				t.Fatal(err)
			}
			if owner != current {
				if len(ids) != 0 {
					t.Fatalf("step %d: the references to %q are %v, expected none", step, owner, ids)
				}
				continue
			}
			if len(ids) != 1 || ids[0].GetUid() != "uid" || ids[0].GetType().GetGroupVersion() != child.Id.Type.GroupVersion {
				t.Fatalf("step %d: the references to %q are %v, expected the child at %s", step, owner, ids, child.Id.Type.GroupVersion)
			}
		}
	}
}

// The first process that opens a file with an early index of owners replaces the index while other processes write.
func TestUpgradeOwnerIndex(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path, nil)
	db := openDirect(t, path)
	execSQL(t, db, `DROP INDEX resources_owned; CREATE INDEX resources_by_owner ON resources (owner) WHERE owner IS NOT NULL`)
	const children = 50
	res := resource("child", 0)
	res.Owner = idOf("owner")
	var all sync.WaitGroup
	all.Go(func() {
		for i := range children {
			res.Id.Name = fmt.Sprint("child-", i)
			if _, err := s.WriteCAS(t.Context(), res); err != nil {
				t.Error(err)
			}
		}
	})
	for range 4 {
		all.Go(func() {
			b, err := New(t.Context(), path, nil)
			if err == nil {
				err = b.Close()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	checkOwnerIndex(t, path)
	ids, err := s.OwnerReferences(t.Context(), idOf("owner"))
	if err != nil || len(ids) != children {
		t.Errorf("got %d references, error %v; expected %d", len(ids), err, children)
	}
}
