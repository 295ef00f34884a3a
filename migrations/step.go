package migrations

import (
	"context"
	"crypto/sha256"
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"text/template"

	"github.com/jackc/pgx/v5"
)

//go:embed *.sql
var files embed.FS

// developmentVersions is the number of schema versions before the first release. The first step leads to the next version, so that
// programs of that time refuse the store as newer.
const developmentVersions = 8

// Step is a step of an upgrade.
type Step struct {
	// Version is the schema version that the step leads to.
	Version int
	// Name is the name of the step's file.
	Name string
	// Oldest is the oldest version whose programs work with the store after the step.
	Oldest int
	// Lock names the locks that the step takes, and the statements that wait for them.
	Lock string
	// Duration is "constant", or names the table or setting that determines how long the step takes.
	Duration string
	// SQL is the text that is executed.
	SQL string
}

// Plan returns the steps that [Up] applies to a store of a version; 0 is a new store. The version is one that [Check] returned.
func Plan(version int, schema string) ([]Step, error) { return plan(version, schema, steps) }

func plan(version int, schema string, steps []step) ([]Step, error) {
	var planned []Step
	for i := max(0, version-developmentVersions); i < len(steps); i++ {
		text, err := steps[i].render(schema)
		if err != nil {
			return nil, err
		}
		next := steps[i].Step
		next.Version = developmentVersions + i + 1
		next.SQL = text
		if next.Oldest == 0 {
			next.Oldest = next.Version
		}
		planned = append(planned, next)
	}
	return planned, nil
}

// step is a file of this package. Its text must not change once a program with it was released: add another step instead.
type step struct {
	Step     // without Version and SQL
	checksum string
	text     *template.Template
}

var steps = func() (all []step) {
	names, err := fs.Glob(files, "*.sql") // sorted
	for _, name := range names {
		var text []byte
		if text, err = files.ReadFile(name); err != nil {
			break
		}
		all = append(all, newStep(name, string(text)))
	}
	if err != nil {
		panic(err)
	}
	return all
}()

// locksOfNewTables describes the locks of the step that creates a store.
const locksOfNewTables = "none on existing tables"

// newStep returns a step. Its headings are lines about the effects on running programs: "-- lock: …", "-- duration: …" or
// "-- oldest program: <version>". A text without headings creates a store, and takes no locks on existing tables.
func newStep(name, text string) step {
	s := step{
		Step:     Step{Name: name, Lock: locksOfNewTables, Duration: "constant"},
		checksum: fmt.Sprintf("%x", sha256.Sum256([]byte(text))), text: template.Must(template.New(name).Parse(text)),
	}
	for line := range strings.Lines(text) {
		heading, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch heading {
		case "-- lock":
			s.Lock = value
		case "-- duration":
			s.Duration = value
		case "-- oldest program":
			version, err := strconv.Atoi(value)
			if err != nil {
				panic(fmt.Errorf("%s: %w", name, err))
			}
			s.Oldest = version
		}
	}
	return s
}

func (s *step) render(schema string) (string, error) {
	var text strings.Builder
	err := s.text.Execute(&text, map[string]string{
		"schema": pgx.Identifier{schema}.Sanitize(), "name": literal(pgx.Identifier{schema, "changes"}), "sequence": literal(pgx.Identifier{schema, "changes_seq"}),
	})
	return text.String(), err
}

// literal returns a qualified name, escaped for a string literal.
func literal(name pgx.Identifier) string { return strings.ReplaceAll(name.Sanitize(), "'", "''") }

// apply executes a step, and records it with its checksum.
func (s Step) apply(ctx context.Context, tx pgx.Tx, schema, checksum string) error {
	if _, err := tx.Exec(ctx, s.SQL); err != nil {
		return err
	}
	if s.Version == developmentVersions+1 { // its table has no column for the oldest program
		_, err := tx.Exec(ctx, "insert into "+table(schema)+" (version, checksum) values ($1, $2)", s.Version, checksum)
		return err
	}
	if _, err := tx.Exec(ctx, "alter table "+table(schema)+" add column if not exists oldest int"); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "insert into "+table(schema)+" (version, checksum, oldest) values ($1, $2, $3)", s.Version, checksum, s.Oldest)
	return err
}

func table(schema string) string { return pgx.Identifier{schema, "schema_version"}.Sanitize() }
