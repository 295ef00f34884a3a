//go:build integration

package postgres

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/migrations"
)

// planned is a store, and a session whose plans are recorded. Only the test analyzes its tables.
type planned struct {
	caller
	setUp *pgx.Conn
	plans *notices
}

func newPlanned(ctx context.Context, t *testing.T) *planned {
	t.Helper()
	server := env.Postgres(t)
	schema := server.Schema(t)
	s := &planned{setUp: server.Connect(t), plans: new(notices)}
	if _, err := migrations.Up(ctx, s.setUp, schema); err != nil {
		t.Fatal(err)
	}
	config := s.setUp.Config()
	config.OnNotice = s.plans.add
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeConn(conn) })
	s.caller = caller{conn, newStatements(schema)}
	for _, table := range []string{"$resources", "$changes"} {
		s.exec(ctx, t, s.setUp, "alter table "+table+" set (autovacuum_enabled = off)")
	}
	return s
}

func (s *planned) exec(ctx context.Context, t *testing.T, conn *pgx.Conn, text string) {
	t.Helper()
	if _, err := conn.Exec(ctx, s.sql.withNames(text)); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func (s *planned) analyze(ctx context.Context, t *testing.T) {
	t.Helper()
	s.exec(ctx, t, s.setUp, "analyze $resources")
	s.exec(ctx, t, s.setUp, "analyze $changes")
}

// TestPlansOfApply calls the function apply in a large store, before and after Postgres has analyzed its tables, and counts the
// pages that its statements read.
func TestPlansOfApply(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	s := newPlanned(ctx, t)
	keys := 0
	operations := func(n int, kind int16) (ops []operation) {
		for range n {
			keys++
			ops = append(ops, operation{fmt.Sprintf("group/kind/new-%d", keys), kind})
		}
		return ops
	}
	calls := func() {
		for _, atomic := range []bool{false, true} {
			for _, ops := range [][]operation{operations(1, kindWrite), operations(4, kindWrite), append(operations(3, kindWrite), operations(2, kindCheck)...)} {
				if _, err := s.apply(ctx, atomic, ops...); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	s.grow(ctx, t, 0, 100000)
	explain(ctx, t, s.conn)
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			s.analyze(ctx, t)
		}
		for range 10 { // Postgres chooses a plan after five calls, and reads its catalog until then
			calls()
		}
		_ = s.plans.take()
		calls()
		plans := s.plans.take()
		if len(plans) < 40 {
			t.Fatalf("got %d plans, expected at least 40, of six calls", len(plans))
		}
		shown := make(map[string]bool) // by the statement
		for _, plan := range plans {
			text, _, _ := strings.Cut(plan, "(cost=")
			if pages := pagesOf(t, plan); pages > manyPages && !shown[text] {
				shown[text] = true
				t.Errorf("analyzed: %v, %d pages:\n%s", analyzed, pages, plan)
			}
		}
	}
}

// explain makes Postgres report to a session how it executed each statement, including statements in functions.
func explain(ctx context.Context, t *testing.T, conn *pgx.Conn) {
	t.Helper()
	_, err := conn.Exec(ctx, `
		load 'auto_explain';
		set auto_explain.log_nested_statements = on;
		set auto_explain.log_analyze = on;
		set auto_explain.log_timing = off;
		set auto_explain.log_buffers = on;
		set auto_explain.log_min_duration = 0;
		set client_min_messages = log`)
	if err != nil {
		t.Fatal(err)
	}
}

// manyPages exceeds the pages that a statement of a few operations reads if it finds everything through the indexes.
const manyPages = 300

// notices records the notices of a session.
type notices struct {
	mu    sync.Mutex
	texts []string
}

func (n *notices) add(_ *pgconn.PgConn, notice *pgconn.Notice) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if strings.Contains(notice.Message, "Query Text:") {
		n.texts = append(n.texts, notice.Message)
	}
}

func (n *notices) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	texts := n.texts
	n.texts = nil
	return texts
}

var buffers = regexp.MustCompile(`Buffers: (?:shared )?(?:hit=(\d+))?(?: ?read=(\d+))?`)

// pagesOf returns the number of pages that a statement read, from the first line of its plan.
func pagesOf(t *testing.T, plan string) (pages int) {
	t.Helper()
	found := buffers.FindStringSubmatch(plan)
	if found == nil {
		return 0 // it read none
	}
	for _, count := range found[1:] {
		if count != "" {
			n, err := strconv.Atoi(count)
			if err != nil {
				t.Fatal(err)
			}
			pages += n
		}
	}
	return pages
}
