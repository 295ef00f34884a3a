package postgres

import (
	"embed"
	"strings"
	"text/template"

	"github.com/jackc/pgx/v5"
)

// statements contains the SQL texts of one store, from the files of the folder sql. Their names are qualified, because a pooler
// does not keep a search_path.
type statements struct {
	schema string

	id, server, whichRun, overdue, busySessions                                                          string
	readOne, readStrong, readMany, tip, pendingWriter, identify, readAfter, checkColumns, children, list string
	listSteps                                                                                            [maxWildcards]string // by the number of wildcards before fixed text, less one
	strongChildren, strongList                                                                           string
	strongListSteps                                                                                      [maxWildcards]string
	quickOne, quickMany, quickDeletions, quickCreations                                                  quickText
	quickLocks, quickProof, updateOne, deleteOne, updateMany, updateTx                                   string
	apply, applyGuarded, revoke, writers, tokens                                                         string
	lastNumber, final, saveFinal, last, tokenPrefix, tokensIn, changes                                   string
	presentPage, presentRange, presentRows, presentCount, historyPage, historyCount                      string
	noChangeSince, countSince, changeAt, lastBefore, readKeys, hasChangeFrom                             string
	proveDurable, proveSchema, proveCompacted                                                            string
	before, compact, retentionLock, mark, horizon, moveOldest, forget, step, prune                       string
	recordPruning, readNote, createNote, updateNote, deleteNote, noteExists, lockNote                    string
	fenceState, setFenceTarget, deleteFenceTarget, closeFence, openFence, dropFence                      string
	createTrigger, dropTrigger, notify, notifyListeners, announceListener, noteBlocker                   string
	primaryPosition, replicaPosition, tablePages, readFence                                              string
}

// quickText is a statement in two forms. The second one also answers whether no earlier change is pending, which takes longer.
type quickText [2]string

func (q *quickText) text(settled bool) string {
	if settled {
		return q[1]
	}
	return q[0]
}

func newStatements(schema string) *statements { return renderStatements(schema, renderer(schema)) }

// newReplicaStatements returns statements that a standby executes too.
func newReplicaStatements(schema string) *statements {
	funcs := sqlFuncs(schema)
	funcs["primary"] = func(value string) string { return value }
	return renderStatements(schema, rendererOf(funcs))
}

func renderStatements(schema string, render func(name string, argument any) string) *statements {
	text := func(name string) string { return render(name, nil) }
	strong := func(list string, arguments int) string {
		return render("strong_list", struct {
			List      string
			Arguments int
		}{list, arguments})
	}
	quick := func(name string) quickText { return quickText{render(name, false), render(name, true)} }
	s := &statements{
		schema: schema,

		id: text("id"), server: text("server"), whichRun: text("which_run"), overdue: text("overdue"), busySessions: text("busy_sessions"),

		readOne: text("read_one"), readStrong: text("read_strong"), readMany: text("read_many"), tip: text("tip"), pendingWriter: text("pending_writer"), identify: text("identify"), readAfter: text("read_after"), checkColumns: text("check_columns"),
		children: text("children"), list: text("list"),

		quickOne: quick("quick_one"), quickMany: quick("quick_many"), quickDeletions: quick("quick_deletions"), quickCreations: quick("quick_creations"),
		quickLocks: text("quick_locks"), quickProof: text("quick_proof"),
		updateOne: text("update_one"), deleteOne: text("delete_one"), updateMany: text("update_many"), updateTx: text("update_tx"),
		apply: text("apply"), applyGuarded: render("apply", true),
		revoke: text("revoke"), writers: text("writers"), tokens: text("tokens"), proveDurable: text("prove_durable"), proveSchema: text("prove_schema"),

		lastNumber: text("last_number"), final: text("final"), saveFinal: text("save_final"), last: text("last"),
		tokenPrefix: text("token_prefix"), tokensIn: text("tokens_in"), changes: text("changes"),

		presentPage: text("present_page"), presentRange: text("present_range"), presentRows: text("present_rows"),
		presentCount: text("present_count"), historyPage: text("history_page"), historyCount: text("history_count"),
		noChangeSince: text("no_change_since"), countSince: text("count_since"), changeAt: text("change_at"),
		lastBefore: text("last_before"), readKeys: text("read_keys"), hasChangeFrom: text("has_change_from"),
		before: text("before"), compact: text("compact"), proveCompacted: text("prove_compacted"),

		retentionLock: text("retention_lock"), mark: text("mark"), horizon: text("horizon"), moveOldest: text("move_oldest"), forget: text("forget"),
		step: text("step"), prune: text("prune"), recordPruning: text("record_pruning"),

		readNote: text("read_note"), createNote: text("create_note"), updateNote: text("update_note"), deleteNote: text("delete_note"),
		noteExists: text("note_exists"), lockNote: text("lock_note"), readFence: text("read_fence"), fenceState: text("fence_state"),
		setFenceTarget: text("set_fence_target"), deleteFenceTarget: text("delete_fence_target"), closeFence: text("close_fence"),
		openFence: text("open_fence"), dropFence: text("drop_fence"), createTrigger: text("create_trigger"), dropTrigger: text("drop_trigger"),

		notify: text("notify"), notifyListeners: text("notify_listeners"), announceListener: text("announce_listener"),
		noteBlocker: text("note_blocker"), primaryPosition: text("primary_position"), replicaPosition: text("replica_position"), tablePages: text("table_pages"),
	}
	for i := range s.listSteps {
		s.listSteps[i] = render("list_steps", i+1)
		s.strongListSteps[i] = strong(s.listSteps[i], i+5)
	}
	s.strongList, s.strongChildren = strong(s.list, 3), strong(s.children, 1)
	return s
}

// maxWildcards is the maximum number of wildcards in a filter.
const maxWildcards = 4

// renderer returns a function that renders a template of the folder sql for a schema.
func renderer(schema string) func(name string, argument any) string {
	return rendererOf(sqlFuncs(schema))
}

func rendererOf(funcs template.FuncMap) func(name string, argument any) string {
	templates := template.Must(sqlTemplates.Clone()).Funcs(funcs)
	return func(name string, argument any) string {
		var text strings.Builder
		if err := templates.ExecuteTemplate(&text, name, argument); err != nil {
			panic(err)
		}
		return strings.TrimSpace(text.String())
	}
}

// isStandby is an expression for whether a statement outside of a transaction may have the snapshot of a standby. The function
// primary_value contains the same condition. A transaction that begins on a standby is read-only until its end, even if the standby is
// promoted meanwhile. So a read-only transaction began on a standby unless the session's transactions are read-only by default. If they
// are, only the present role of the server counts.
const isStandby = `current_setting('transaction_read_only') = 'on' and (pg_is_in_recovery() or current_setting('default_transaction_read_only') = 'off')`

// sqlFuncs are the functions of the templates. Only the names depend on the schema.
func sqlFuncs(schema string) template.FuncMap {
	return template.FuncMap{
		"schema": pgx.Identifier{schema}.Sanitize,
		"name":   func(name string) string { return nameLiteral(schema, name) },
		"primary": func(value string) string {
			// The expression has no volatile function, so it can be the key of an index scan, which evaluates it once.
			return "case current_setting('transaction_read_only') when 'on' then " +
				pgx.Identifier{schema, "primary_value"}.Sanitize() + "(" + value + ") else " + value + " end"
		},
		"standby": func() string { return isStandby },
		"add":     func(a, b int) int { return a + b },
		"sub":     func(a, b int) int { return a - b },
	}
}

// nameLiteral returns the qualified name of a table, a sequence or a function as a string literal.
func nameLiteral(schema, name string) string {
	return "'" + strings.ReplaceAll(pgx.Identifier{schema, name}.Sanitize(), "'", "''") + "'"
}

//go:embed sql/*.sql
var sqlFiles embed.FS

// sqlTemplates has a template for each file of the folder sql, without its comments, and the fragments of fragments.sql.
var sqlTemplates = func() *template.Template {
	all := template.New("").Funcs(sqlFuncs(""))
	files, err := sqlFiles.ReadDir("sql")
	for _, file := range files {
		var text []byte
		if text, err = sqlFiles.ReadFile("sql/" + file.Name()); err != nil {
			break
		}
		template.Must(all.New(strings.TrimSuffix(file.Name(), ".sql")).Parse(withoutComments(string(text))))
	}
	return template.Must(all, err)
}()

// withoutComments removes the lines that are comments. They need no regular expression, which would slow every start of a program.
func withoutComments(sql string) string {
	var text strings.Builder
	for line := range strings.Lines(sql) {
		if !strings.HasPrefix(line, "--") {
			text.WriteString(line)
		}
	}
	return text.String()
}

// The modes of transactions do not depend on the defaults of the session. A standby refuses to begin a transaction that may write, so
// all snapshots of such a transaction are from a primary. A pooler does not pass on the role of its server.

// readCommitted begins a transaction whose statements each have their own snapshot.
const readCommitted = `begin isolation level read committed read write`

// readReplica is readCommitted for a server that may be a standby.
const readReplica = `begin isolation level read committed read only`

// beginWarned begins a transaction that sends warnings: a commit that stops waiting for its standby raises one.
const beginWarned = readCommitted + `; set local client_min_messages = warning`

// repeatableRead begins a transaction whose statements all have the snapshot of the first.
const repeatableRead = `begin isolation level repeatable read read write`
