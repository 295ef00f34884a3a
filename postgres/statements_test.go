//go:build integration

package postgres

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/migrations"
)

// TestStatementsPrepare prepares every statement on a server, or executes it if it is DDL, which cannot be prepared. It fails for a file
// that no statement uses.
func TestStatementsPrepare(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	schema, conn := server.Schema(t), server.Connect(t)
	if _, err := migrations.Up(ctx, conn, schema); err != nil {
		t.Fatal(err)
	}
	s := newStatements(schema)
	texts := append(slices.Clone(s.listSteps[:]), s.strongListSteps[:]...)
	texts = slices.AppendSeq(texts, maps.Values(s.texts()))
	ddl := []string{s.closeFence, s.openFence, s.createTrigger, s.dropTrigger, s.dropFence}
	for _, text := range ddl {
		if _, err := conn.Exec(ctx, text); err != nil {
			t.Errorf("%v:\n%s", err, text)
		}
	}
	for _, text := range texts {
		if slices.Contains(ddl, text) {
			continue
		}
		if _, err := conn.Prepare(ctx, "", text); err != nil {
			t.Errorf("%v:\n%s", err, text)
		}
	}
	files, err := sqlFiles.ReadDir("sql")
	if err != nil {
		t.Fatal(err)
	}
	render := renderer(schema)
	for _, file := range files {
		text := render(strings.TrimSuffix(file.Name(), ".sql"), 1)
		if text != "" && !slices.Contains(texts, text) {
			t.Errorf("no statement uses the file %s", file.Name())
		}
	}
}

// texts returns the statements by the names of their fields, except those that depend on the number of wildcards.
func (s *statements) texts() map[string]string {
	texts := map[string]string{}
	for field, value := range reflect.ValueOf(*s).Fields() {
		switch value.Type() {
		case reflect.TypeFor[string]():
			texts[field.Name] = value.String()
		case reflect.TypeFor[quickText]():
			texts[field.Name], texts[field.Name+settledName] = value.Index(0).String(), value.Index(1).String()
		}
	}
	delete(texts, "schema")
	return texts
}

// settledName is added to the name of a quick statement that answers whether no earlier change is pending.
const settledName = "Settled"

// note is a placeholder for the fragment of that name.
const note = "$note"

// withNames replaces $name by the qualified name of a table or function, and $name_name by that name as a string literal.
func (s *statements) withNames(text string) string {
	if text == note {
		return renderer(s.schema)("note", nil)
	}
	quoted := func(name string) string { return pgx.Identifier{s.schema, name}.Sanitize() }
	literal := func(name string) string { return "'" + strings.ReplaceAll(quoted(name), "'", "''") + "'" }
	names := []string{"$changes_name", literal("changes"), "$resources_name", literal("resources"), "$seq_name", literal("changes_seq")}
	for _, name := range []string{"changes_seq", "resources", "store", "marks", "revoked", "journal", "apply", "past", "created", "changes", "fence", "primary_value"} {
		names = append(names, "$"+name, quoted(name))
	}
	return strings.NewReplacer(names...).Replace(text)
}
