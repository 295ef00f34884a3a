//go:build integration

package postgres

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ashlar-dev/storage/internal/testenv"
	"github.com/ashlar-dev/storage/migrations"
)

// TestStandbyIsNotFinal asks a standby how far the history is final. It has no notes, and its sequence is ahead of what was drawn; a
// pooler may lead to one without the connection's telling.
func TestStandbyIsNotFinal(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	pair := testenv.StartPostgresPair(t)
	const schema = "store" // goes with the servers
	primary := pair.Primary.Connect(t)
	if _, err := migrations.Up(ctx, primary, schema, migrations.Latest); err != nil {
		t.Fatal(err)
	}
	pair.CatchUp(t)
	sql := newStatements(schema)
	if _, _, err := scanFinal(primary.QueryRow(ctx, sql.final)); err != nil {
		t.Errorf("the primary: %v", err)
	}
	if last, final, err := scanFinal(pair.Standby.Connect(t).QueryRow(ctx, sql.final)); !errors.Is(err, errStandby) {
		t.Errorf("the standby says that of %d numbers %d are final: %v, expected that it does not know", last, final, err)
	}
}
