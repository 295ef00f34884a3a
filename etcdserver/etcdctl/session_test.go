package etcdctl

// session is a sequence of commands against one server, with their documented differences.
type session struct {
	name  string // what is compared, for the documents
	steps []step
}

// step is one command of etcdctl. In its arguments, @NAME is the revision after the step with that mark, and %NAME the lease that the step
// was granted.
type step struct {
	args  []string
	stdin string
	mark  string
	// until ends an endless command: it is interrupted once it has printed this text.
	until string
	then  []then
	// differs is the reason why the output is not etcd's, here is a part of this server's output, and says is appended to the command in
	// the table of docs/etcd.md.
	differs, here, says string
}

// then is a step that runs during the previous step.
type then struct {
	after string // the text that the other command must have printed
	step
}

// run is a step with only a command line.
func run(args ...string) step { return step{args: args} }

// refusal is a step that this server rejects with a message. reason is the documented reason of the difference.
func refusal(reason, message string, args ...string) step {
	return step{args: args, differs: "refused: " + reason, here: message}
}

const (
	ownMembers = "a store has no members; manage the members of its database by the database's tools"
	ownFiles   = "the server has no files; back up and compact the database by its own tools"
	ownUsers   = "callers identify themselves by certificates (`--client-ca`)"
)

var sessions = []session{
	{"keys", []step{
		run("put", "a", "1"),
		{args: []string{"put", "a", "2", "--prev-kv"}, mark: "two"},
		run("put", "a", "--ignore-value"),
		run("put", "none", "--ignore-value"),
		run("put", "a", "x", "--ignore-lease"),
		run("put", "", "x"),
		run("put", "a", "3", "--lease=7"),
		{args: []string{"put", "standard input"}, stdin: "from\nthere"},
		run("put", "b/1", "x", "-w", "json"),
		run("put", "b/2", "y", "-w", "fields"),
		run("put", "b/3", "z"),
		run("get", "a"), run("get", "a", "-w", "json"), run("get", "a", "-w", "fields"), run("get", "a", "--hex"),
		run("get", "a", "--rev=@two"), run("get", "a", "--rev=99999"), run("get", "a", "--print-value-only"),
		run("get", "", "--prefix"), run("get", "", "--from-key", "--keys-only"), run("get", "b/1", "b/3"), run("get", "b/2", "b/1"),
		run("get", "b/", "--prefix", "--limit=2", "-w", "json"), run("get", "b/", "--prefix", "--count-only", "-w", "fields"),
		run("get", "b/", "--prefix", "--sort-by=MODIFY", "--order=DESCEND"), run("get", "", "--prefix", "--sort-by=VALUE"),
		run("get", "", "--prefix", "--consistency=s"), run("get", "b/", "--prefix", "--min-mod-rev=@two", "--max-create-rev=@two"),
		run("get", "none"), run("get", "none", "-w", "json"),
		{
			args: []string{"put", "\xff\xfe", "x"}, says: "with a key that is not UTF-8", here: "it is not valid UTF-8",
			differs: "refused: keys are UTF-8 without NUL, at most 762 bytes long",
		},
	}},
	{"deletions", []step{
		run("put", "a", "1"), run("put", "b/1", "x"), run("put", "b/2", "y"), run("put", "b/3", "z"),
		run("del", "none"), run("del", "a", "--prev-kv"), run("del", "b/", "--prefix", "--prev-kv", "-w", "fields"), run("del", ""),
		run("put", "c", "1"), run("put", "d", "1"), run("del", "c", "--from-key"), run("get", "", "--prefix"),
	}},
	{"transactions", []step{
		run("put", "a", "1"),
		{args: []string{"txn"}, stdin: "mod(\"b\") = \"0\"\n\nput b 1\n\nget b\n\n"},
		{args: []string{"txn"}, stdin: "mod(\"b\") = \"0\"\n\nput b 1\n\nget b\n\n"},
		{args: []string{"txn", "-w", "json"}, stdin: "value(\"a\") = \"1\"\nversion(\"b\") > \"0\"\n\nput a 2\nget a\nput c 3\n\ndel a\n\n"},
		{args: []string{"txn"}, stdin: "version(\"b\") > \"0\"\n\ndel a\nput d 4\nget \"\" --prefix\n\n\n"},
		{args: []string{"txn"}, stdin: "value(\"d\") = \"4\"\n\ndel d --prev-kv\n\n\n"},
		{args: []string{"txn"}, stdin: "version(\"b\") > \"0\"\n\ndel c d --prev-kv\nput e 1\nget \"\" --prefix\n\n\n"},
		{args: []string{"txn"}, stdin: "value(\"b\") = \"1\"\n\nget b\ndel b\nput f 1\n\n\n"},
		run("get", "", "--prefix"),
		{args: []string{"txn"}, stdin: "\n\nput a 1\nput a 2\n\n\n"},
		{args: []string{"txn"}, stdin: "\n\nput e 1 --lease=7\n\n\n"},
	}},
	{"watches", []step{
		{args: []string{"put", "a", "1"}, mark: "first"},
		run("put", "a", "2"), run("put", "b", "1"), run("del", "a"),
		{
			args: []string{"watch", "a", "--rev=@first"}, until: "\nlive\n",
			then: []then{{"DELETE", run("put", "a", "live")}},
		},
		{
			args: []string{"watch", "", "--prefix", "--prev-kv", "--rev=@first"}, until: "last",
			then: []then{{"live", run("put", "z", "last")}},
		},
		{
			args: []string{"watch", "a", "c", "--rev=@first", "-w", "json"}, until: `"bGl2ZTI="`,
			then: []then{{`"MQ=="`, run("put", "b", "live2")}}, here: `"revision":step0`,
			differs: "a watch that catches up gets one response for each commit, whose header has the revision of that commit",
		},
		{args: []string{"watch", "-i"}, stdin: "watch a --rev=@first\n", until: "\nlive\n"},
		{args: []string{"watch", "z", "--rev=@first", "--", "sh", "-c", "echo $ETCD_WATCH_EVENT_TYPE $ETCD_WATCH_KEY $ETCD_WATCH_VALUE"},
			until: "last"},
		run("compaction", "@first"),
		run("compaction", "@first"),
		run("compaction", "99999"),
		{args: []string{"put", "a", "3"}, mark: "later"},
		run("compaction", "@later"),
		run("get", "a", "--rev=@first"),
		run("watch", "a", "--rev=@first"),
	}},
	{"leases", []step{
		{args: []string{"lease", "grant", "600"}, mark: "L"},
		{
			args: []string{"lease", "grant", "600", "-w", "json"}, mark: "M", here: "step1",
			differs: "revisions also count leases and their renewals",
		},
		run("lease", "revoke", "%M"),
		run("put", "a", "1", "--lease=%L"), run("get", "a", "-w", "json"),
		run("put", "a", "2", "--ignore-lease"), run("get", "a", "-w", "fields"),
		run("lease", "timetolive", "%L"), run("lease", "timetolive", "%L", "--keys"), run("lease", "timetolive", "%L", "--keys", "-w", "json"),
		run("put", "b", "1", "--lease=%L"), run("lease", "keep-alive", "--once", "%L"),
		{args: []string{"lease", "keep-alive", "%L"}, until: "keepalived with TTL"},
		run("lease", "list"),
		run("lease", "revoke", "%L"), run("get", "", "--prefix"), run("lease", "timetolive", "%L"), run("lease", "revoke", "%L"),
		run("lease", "keep-alive", "--once", "%L"), run("lease", "list"),
		{args: []string{"lease", "grant", "99999999999"}},
		{args: []string{"lease", "grant", "8"}, mark: "S"},
		run("put", "s", "1", "--lease=%S"),
		{args: []string{"watch", "s", "--rev=1"}, until: "DELETE"},
	}},
	{"locks and elections", []step{
		run("lock", "l", "--", "echo", "held"), run("lock", "l", "--", "false"),
		{args: []string{"lock", "l"}, until: "l/"},
		run("get", "l", "--prefix", "--keys-only"),
		{args: []string{"elect", "e", "me"}, until: "me\n"},
		run("get", "e", "--prefix", "--keys-only"),
		{
			args: []string{"elect", "e", "you"}, until: "you\n",
			then: []then{{"you", step{args: []string{"elect", "-l", "e"}, until: "you\n"}}},
		},
	}},
	{"maintenance", []step{
		run("endpoint", "health"), run("endpoint", "health", "-w", "json"), run("alarm", "list"), run("alarm", "disarm"), run("auth", "status"),
		{
			args: []string{"endpoint", "status"}, here: ", 3.7.3, ",
			differs: "the version is that of etcd's API, the size is always 1 byte, and the index of Raft is the newest revision",
		},
		refusal(ownFiles, "this server has no files", "snapshot", "save", "snapshot.db"),
		refusal(ownFiles, "this server has no files", "defrag"),
		refusal(ownFiles, "this server has no files", "endpoint", "hashkv"),
		refusal(ownMembers, "this server has no members", "member", "list"),
		refusal(ownMembers, "this server has no members", "member", "add", "x", "--learner", "--peer-urls=http://x:1"),
		refusal(ownMembers, "this server has no members", "member", "remove", "1"),
		refusal(ownMembers, "this server has no members", "move-leader", "1"),
		refusal(ownMembers, "this server has no members", "downgrade", "validate", "3.5"),
		refusal(ownUsers, "this server has no users", "user", "add", "u", "--no-password"),
		refusal(ownUsers, "this server has no users", "user", "list"),
		refusal(ownUsers, "this server has no users", "role", "add", "r"),
		refusal(ownUsers, "this server has no users", "role", "list"),
		refusal(ownUsers, "this server has no users", "auth", "enable"),
	}},
}
