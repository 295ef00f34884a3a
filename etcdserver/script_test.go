package etcdserver_test

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// script runs operations of etcd's clients and records the responses, so that two servers can be compared. A revision is recorded as the
// number of its step, because servers may count leases, or the changes of a transaction one by one.
type script struct {
	t     *testing.T
	c     *clientv3.Client
	steps []int64 // the revision after each step
	lines []string
	lease clientv3.LeaseID
}

func (s *script) step(r int64) int {
	if r == 0 {
		return 0
	}
	for i, until := range s.steps {
		if r <= until {
			return i + 1
		}
	}
	return -1
}

func (s *script) kv(kv *mvccpb.KeyValue) string {
	if kv == nil {
		return "nothing"
	}
	lease := ""
	if kv.Lease != 0 {
		lease = " leased"
	}
	created, modified := s.step(kv.CreateRevision), s.step(kv.ModRevision)
	return fmt.Sprintf("%q=%q created %d modified %d version %d%s", kv.Key, kv.Value, created, modified, kv.Version, lease)
}

func (s *script) kvs(kvs []*mvccpb.KeyValue) (text string) {
	for _, kv := range kvs {
		text += "\n    " + s.kv(kv)
	}
	return text
}

func (s *script) response(r clientv3.OpResponse) string {
	switch {
	case r.Get() != nil:
		return fmt.Sprintf("get count %d more %v%s", r.Get().Count, r.Get().More, s.kvs(r.Get().Kvs))
	case r.Put() != nil:
		return "put " + s.kv(r.Put().PrevKv)
	case r.Del() != nil:
		return fmt.Sprintf("del %d%s", r.Del().Deleted, s.kvs(r.Del().PrevKvs))
	}
	text := fmt.Sprintf("txn %v", r.Txn().Succeeded)
	for _, one := range r.Txn().Responses {
		switch {
		case one.GetResponseRange() != nil:
			g := one.GetResponseRange()
			text += fmt.Sprintf("\n  get count %d more %v%s", g.Count, g.More, s.kvs(g.Kvs))
		case one.GetResponsePut() != nil:
			text += "\n  put " + s.kv(one.GetResponsePut().PrevKv)
		case one.GetResponseDeleteRange() != nil:
			d := one.GetResponseDeleteRange()
			text += fmt.Sprintf("\n  del %d%s", d.Deleted, s.kvs(d.PrevKvs))
		case one.GetResponseTxn() != nil:
			text += fmt.Sprintf("\n  txn %v with %d answers", one.GetResponseTxn().Succeeded, len(one.GetResponseTxn().Responses))
		}
	}
	return text
}

func (s *script) do(what string, op clientv3.Op) {
	s.t.Helper()
	r, err := s.c.Do(ctx(s.t), op)
	revision, err2 := s.c.Get(ctx(s.t), "no such key")
	if err2 != nil {
		s.t.Fatal(err2)
	}
	s.steps = append(s.steps, revision.Header.Revision)
	text := ""
	if err != nil {
		text = "error: " + err.Error()
	} else {
		text = s.response(r)
	}
	s.lines = append(s.lines, fmt.Sprintf("%d %s: %s", len(s.steps), what, text))
}

// at returns the revision after a step.
func (s *script) at(step int) int64 { return s.steps[step-1] }

// runScript runs all operations and returns the record.
func runScript(t *testing.T, c *clientv3.Client) string {
	s := &script{t: t, c: c, lease: grant(t, c, 3600)}
	s.puts()
	s.gets()
	s.txns()
	s.deletes()
	s.errors()
	s.watch()
	return strings.Join(s.lines, "\n") + "\n"
}

func (s *script) puts() {
	prev := clientv3.WithPrevKV()
	s.do("put new", clientv3.OpPut("a", "1", prev))
	s.do("put over", clientv3.OpPut("a", "2", prev))
	s.do("put a lease", clientv3.OpPut("a", "3", prev, clientv3.WithLease(s.lease)))
	s.do("put, keep the lease", clientv3.OpPut("a", "4", prev, clientv3.WithIgnoreLease()))
	s.do("put, keep the value", clientv3.OpPut("a", "", prev, clientv3.WithIgnoreValue()))
	s.do("put, keep nothing", clientv3.OpPut("none", "", clientv3.WithIgnoreValue()))
	s.do("put an empty value", clientv3.OpPut("*", ""))
	for _, key := range []string{"b", "b/", "b/1", "b0", "é", "z"} {
		s.do("put "+key, clientv3.OpPut(key, "value of "+key))
	}
	s.do("put a long key", clientv3.OpPut(strings.Repeat("long", 150), "long"))
}

func (s *script) gets() {
	all := clientv3.WithPrefix()
	s.do("get all", clientv3.OpGet("", all))
	s.do("get from", clientv3.OpGet("b/1", clientv3.WithFromKey()))
	s.do("get between", clientv3.OpGet("b", clientv3.WithRange("b0")))
	s.do("get a prefix that ends within a character", clientv3.OpGet("\xc3", all))
	s.do("get between nothing", clientv3.OpGet("z", clientv3.WithRange("a")))
	s.do("get with a limit", clientv3.OpGet("b", all, clientv3.WithLimit(2)))
	s.do("get with a limit that is enough", clientv3.OpGet("b", all, clientv3.WithLimit(4)))
	s.do("count", clientv3.OpGet("b", all, clientv3.WithCountOnly()))
	s.do("count with a limit", clientv3.OpGet("b", all, clientv3.WithCountOnly(), clientv3.WithLimit(1)))
	s.do("keys", clientv3.OpGet("b", all, clientv3.WithKeysOnly()))
	s.do("get the past", clientv3.OpGet("", all, clientv3.WithRev(s.at(9))))
	s.do("count the past", clientv3.OpGet("", all, clientv3.WithRev(s.at(9)), clientv3.WithCountOnly()))
	s.do("get serializable", clientv3.OpGet("a", clientv3.WithSerializable()))
	for _, target := range []clientv3.SortTarget{
		clientv3.SortByKey, clientv3.SortByVersion, clientv3.SortByCreateRevision, clientv3.SortByModRevision, clientv3.SortByValue,
	} {
		for _, order := range []clientv3.SortOrder{clientv3.SortAscend, clientv3.SortDescend} {
			s.do(fmt.Sprintf("sort by %d, %d", target, order), clientv3.OpGet("", all, clientv3.WithSort(target, order), clientv3.WithLimit(3)))
		}
	}
	byRevision := clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortNone)
	s.do("sort by revision in no order", clientv3.OpGet("", all, byRevision, clientv3.WithLimit(1)))
	s.do("modified since", clientv3.OpGet("", all, clientv3.WithMinModRev(s.at(9))))
	s.do("modified until", clientv3.OpGet("", all, clientv3.WithMaxModRev(s.at(9)), clientv3.WithLimit(2)))
	s.do("created since", clientv3.OpGet("", all, clientv3.WithMinCreateRev(s.at(9))))
	s.do("created until", clientv3.OpGet("", all, clientv3.WithMaxCreateRev(s.at(9))))
}

func (s *script) txns() {
	is := clientv3.Compare
	get, prefix, prev := clientv3.OpGet, clientv3.WithPrefix(), clientv3.WithPrevKV()
	put, del, txn := clientv3.OpPut, clientv3.OpDelete, clientv3.OpTxn
	if0 := []clientv3.Cmp{is(clientv3.ModRevision("k"), "=", 0)}
	s.do("create", txn(if0, []clientv3.Op{put("k", "1")}, []clientv3.Op{get("k")}))
	s.do("create again", txn(if0, []clientv3.Op{put("k", "1")}, []clientv3.Op{get("k")}))
	created := s.at(len(s.steps) - 1)
	s.do("update", txn([]clientv3.Cmp{is(clientv3.ModRevision("k"), "=", created)}, []clientv3.Op{put("k", "2", prev)}, nil))
	s.do("update what is no more", txn([]clientv3.Cmp{is(clientv3.ModRevision("k"), "=", created)},
		[]clientv3.Op{put("k", "3")}, []clientv3.Op{get("k"), get("b", prefix)}))
	for i, one := range []clientv3.Cmp{
		is(clientv3.Value("k"), "=", "2"), is(clientv3.Version("k"), ">", 1), is(clientv3.LeaseValue("a"), "!=", 0),
		is(clientv3.Value("none"), "!=", "x"), is(clientv3.CreateRevision("k"), "<", created+1), is(clientv3.Version("none"), "<", 1),
	} {
		s.do(fmt.Sprintf("if %d", i+1), txn([]clientv3.Cmp{one}, []clientv3.Op{get("k", clientv3.WithCountOnly())}, nil))
	}
	s.do("if range", txn([]clientv3.Cmp{is(clientv3.Version("b"), "=", 1).WithPrefix()}, []clientv3.Op{get("b", prefix)}, nil))
	s.do("read, put, read", txn(nil, []clientv3.Op{
		get("k", prefix), put("k", "5", prev), get("k"), get("b", prefix, clientv3.WithCountOnly()),
	}, nil))
	s.do("put two", txn([]clientv3.Cmp{is(clientv3.Version("a"), "=", 5)}, []clientv3.Op{
		put("t1", "1"), get("t", prefix), put("t2", "2"), get("t", prefix),
	}, nil))
	s.do("put and delete", txn([]clientv3.Cmp{is(clientv3.Version("t3"), "=", 0)}, []clientv3.Op{
		put("t3", "3"), del("t", clientv3.WithRange("t3"), prev), get("t", prefix),
	}, nil))
	inside := txn([]clientv3.Cmp{is(clientv3.Version("n1"), "=", 0)}, []clientv3.Op{put("n2", "2")}, []clientv3.Op{put("n3", "3")})
	s.do("nested", txn(nil, []clientv3.Op{put("n1", "1"), inside}, nil))
	s.do("after nested", get("n", prefix))
	s.do("put twice", txn(nil, []clientv3.Op{put("k", "1"), put("k", "2")}, nil))
	s.do("put what is deleted", txn(nil, []clientv3.Op{put("k", "1"), del("k")}, nil))
	s.do("as a mutex does", txn([]clientv3.Cmp{is(clientv3.CreateRevision("m/1"), "=", 0)}, []clientv3.Op{
		put("m/1", "", clientv3.WithLease(s.lease)), get("m/", clientv3.WithFirstCreate()...),
	}, nil))
	s.do("delete if", txn([]clientv3.Cmp{is(clientv3.Version("m/1"), "=", 1)}, []clientv3.Op{del("m/1", prev), get("m/", prefix)}, nil))
	s.do("empty", txn(nil, nil, nil))
}

func (s *script) deletes() {
	s.do("delete nothing", clientv3.OpDelete("none", clientv3.WithPrevKV()))
	s.do("delete", clientv3.OpDelete("k", clientv3.WithPrevKV()))
	s.do("delete many", clientv3.OpDelete("b", clientv3.WithPrefix(), clientv3.WithPrevKV()))
	s.do("create anew", clientv3.OpPut("b", "again", clientv3.WithPrevKV()))
	s.do("what is left", clientv3.OpGet("", clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithMaxModRev(1)))
}

func (s *script) errors() {
	s.do("no key", clientv3.OpPut("", "x"))
	s.do("delete no key", clientv3.OpDelete(""))
	s.do("the future", clientv3.OpGet("a", clientv3.WithRev(1<<40)))
	future := clientv3.OpGet("a", clientv3.WithRev(1<<40))
	s.do("the future of a transaction", clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut("f", ""), future}, nil))
	s.do("no such lease", clientv3.OpPut("a", "x", clientv3.WithLease(1)))
	_, err := s.c.Compact(ctx(s.t), s.at(20))
	s.lines = append(s.lines, fmt.Sprint("compact: ", err))
	_, err = s.c.Compact(ctx(s.t), s.at(20))
	s.lines = append(s.lines, fmt.Sprint("compact again: ", err))
	_, err = s.c.Compact(ctx(s.t), 1<<40)
	s.lines = append(s.lines, fmt.Sprint("compact the future: ", err))
	s.do("what is compacted", clientv3.OpGet("a", clientv3.WithRev(s.at(3))))
	s.do("the oldest", clientv3.OpGet("a", clientv3.WithRev(s.at(20))))
	_, err = s.c.Revoke(ctx(s.t), 1)
	s.lines = append(s.lines, fmt.Sprint("revoke: ", err))
	_, err = s.c.KeepAliveOnce(ctx(s.t), 1)
	s.lines = append(s.lines, fmt.Sprint("keep alive: ", err))
	_, err = s.c.Grant(ctx(s.t), 1<<40)
	s.lines = append(s.lines, fmt.Sprint("grant: ", err))
	ttl, err := s.c.TimeToLive(ctx(s.t), s.lease, clientv3.WithAttachedKeys())
	s.lines = append(s.lines, fmt.Sprintf("time to live: %d %s %v", ttl.GrantedTTL, ttl.Keys, err))
	ttl, err = s.c.TimeToLive(ctx(s.t), 1)
	s.lines = append(s.lines, fmt.Sprintf("time to live of none: %d %v", ttl.TTL, err))
}

func (s *script) watch() {
	gone := <-s.c.Watch(ctx(s.t), "a", clientv3.WithRev(s.at(3)))
	s.lines = append(s.lines, fmt.Sprintf("watch: %v, canceled %v, compacted to %d", gone.Err(), gone.Canceled, s.step(gone.CompactRevision)))
	w := s.c.Watch(ctx(s.t), "", clientv3.WithPrefix(), clientv3.WithRev(s.at(20)+1), clientv3.WithPrevKV())
	s.do("the last", clientv3.OpPut("last", ""))
	type line struct {
		step int
		text string
	}
	var watched []line
	for done := false; !done; {
		answer := <-w
		if answer.Err() != nil {
			s.t.Fatal(answer.Err())
		}
		for _, ev := range answer.Events {
			text := fmt.Sprintf("watched %s %s, before %s", ev.Type, s.kv(ev.Kv), s.kv(ev.PrevKv))
			watched = append(watched, line{s.step(ev.Kv.ModRevision), text})
			done = done || string(ev.Kv.Key) == "last"
		}
	}
	if !slices.IsSortedFunc(watched, func(a, b line) int { return cmp.Compare(a.step, b.step) }) {
		s.t.Errorf("watched out of order: %v", watched)
	}
	// The changes of a transaction have no order.
	slices.SortFunc(watched, func(a, b line) int { return cmp.Or(cmp.Compare(a.step, b.step), cmp.Compare(a.text, b.text)) })
	for _, w := range watched {
		s.lines = append(s.lines, w.text)
	}
}

// The responses of etcd are in testdata; the integration tests compare them with etcd.
func TestAnswersAreThoseOfEtcd(t *testing.T) {
	aloneOnEngines(t, func(t *testing.T, c *clientv3.Client) { sameAsEtcd(t, runScript(t, c)) })
}

// sameAsEtcd compares the responses of a server with etcd's responses.
func sameAsEtcd(t *testing.T, got string) {
	t.Helper()
	want, err := os.ReadFile("testdata/script.txt")
	if err != nil {
		t.Fatal(err)
	}
	wanted, lines := strings.Split(string(want), "\n"), strings.Split(got, "\n")
	for i := range max(len(wanted), len(lines)) {
		a, b := "(nothing)", "(nothing)"
		if i < len(wanted) {
			a = wanted[i]
		}
		if i < len(lines) {
			b = lines[i]
		}
		if a != b {
			t.Errorf("line %d:\n  etcd: %s\n  here: %s", i+1, a, b)
		}
	}
}
