package sqlite

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// invariants holds a query for each rule about the tables of a store. It counts the violations.
var invariants = map[string]string{
	"resources without their row in the log": `SELECT count(*) FROM resources AS r WHERE NOT EXISTS
		(SELECT 1 FROM log WHERE seq = r.seq AND tag = r.tag AND key = r.key AND data = r.data AND last = r.last AND created = r.created AND writes = r.writes)`,
	"rows missing above the horizon": `SELECT max(seq) - followed - count(*) FILTER (WHERE seq > followed) FROM log, meta HAVING max(seq) > 0`,
	"rows above the horizon without their previous row": `SELECT count(*) FROM log AS l, meta WHERE seq > horizon AND prev <> 0 AND NOT EXISTS
		(SELECT 1 FROM log WHERE seq = l.prev AND key = l.key AND gone_tag IS NULL)`,
	"skip pointers to rows of other resources": `SELECT count(*) FROM log AS l, meta WHERE seq > followed AND jump > followed AND NOT EXISTS
		(SELECT 1 FROM log WHERE seq = l.jump AND key = l.key AND gone_tag IS NULL)`,
	"deletions missing in table gone": `SELECT count(*) FROM log AS l WHERE gone_tag IS NOT NULL AND NOT EXISTS
		(SELECT 1 FROM gone WHERE seq = l.seq AND key = l.key)`,
	"rows of table gone without a deletion": `SELECT count(*) FROM gone AS g WHERE NOT EXISTS
		(SELECT 1 FROM log WHERE seq = g.seq AND key = g.key AND gone_tag IS NOT NULL)`,
	"rows that history does not need": `SELECT count(*) FROM log AS l, meta WHERE seq < pruned AND NOT EXISTS
		(SELECT 1 FROM resources WHERE key = l.key AND seq = l.seq) AND NOT EXISTS (SELECT 1 FROM log WHERE prev = l.seq AND seq >= pruned)`,
	"calls above the horizon without their last row": `SELECT count(*) FROM log AS l, meta WHERE l.seq > horizon AND l.last > l.seq AND NOT EXISTS
		(SELECT 1 FROM log WHERE seq = l.last AND last <= seq AND tag = l.tag)`,
	"a horizon inside a call":        `SELECT count(*) FROM log, meta WHERE seq = horizon AND last > seq`,
	"bounds of history out of order": `SELECT count(*) FROM meta WHERE pruned > followed OR followed > horizon OR horizon > (SELECT max(seq) FROM log)`,
}

// checkTables checks the invariants of a store.
func checkTables(t testing.TB, path string) {
	t.Helper()
	db := openDirect(t, path)
	for rule, query := range invariants {
		if n := queryInt(t, db, query); n != 0 {
			t.Errorf("%d violations: %s", n, rule)
		}
	}
}

// pruneUntilKilled writes, deletes and creates resources, with the smallest retention, and compacts history, until it
// is killed.
func pruneUntilKilled(path string) {
	ctx := context.Background()
	s, err := New(ctx, path, &Options{RetentionRows: 1, minRetention: 1})
	must(err)
	go func() {
		for n := 0; ; n++ {
			ops := make([]storage.Op, 50)
			for i := range ops {
				id := idOf(fmt.Sprint(os.Getpid(), "-", rand.IntN(4), "-", i))
				old, err := s.Read(ctx, storage.StrongConsistency, id)
				switch {
				case err == nil && rand.IntN(3) == 0:
					ops[i] = storage.Op{Delete: old.Id, Version: old.Version}
				default:
					ops[i].Write = resource(id.Name, int64(n))
					ops[i].Write.Version = old.GetVersion()
				}
			}
			_, err := s.Commit(ctx, ops)
			must(err)
			if n%5 == 0 {
				oldest, newest, err := s.handle.Revisions(ctx)
				must(err)
				err = s.handle.Compact(ctx, oldest+(newest-oldest)/2)
				must(err)
			}
			fmt.Println(n)
		}
	}()
	_, _ = io.Copy(io.Discard, os.Stdin) // ends with its parent
}

// Processes killed while they prune concurrently leave a complete history without needless rows.
func TestKilledPruning(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	for range 3 {
		var outs []*bufio.Scanner
		var cmds []*exec.Cmd
		for range 2 {
			_, out, cmd := startChild(t, "pruning", path)
			outs, cmds = append(outs, out), append(cmds, cmd)
		}
		for i, out := range outs {
			for rounds := 0; rounds < 12 && out.Scan(); rounds++ {
				continue
			}
			if err := cmds[i].Process.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := cmds[i].Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
				t.Fatalf("the child ended with %v, expected a kill", err)
			}
		}
		checkTables(t, path)
	}
	s := open(t, path, nil)
	_, newest, err := s.handle.Revisions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	list, err := s.List(t.Context(), storage.StrongConsistency, fixture.AllTypes, fixture.AllTenancies, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.handle.Compact(t.Context(), newest); err != nil {
		t.Fatal(err)
	}
	checkTables(t, path)
	if length := queryInt(t, openDirect(t, path), countRows); length > int64(len(list))+2 {
		t.Errorf("the log has %d rows for %d resources, expected at most 2 more", length, len(list))
	}
}
