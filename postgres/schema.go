package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/scratchstore"
	"github.com/ashlar-dev/storage/migrations"
)

// open makes sure that the store exists with the schema version of this program, and reads its id.
func (d *database) open(ctx context.Context) error {
	uncertain := false // an attempt may have upgraded the store, and may not be durable
	return d.retry(ctx, func(ctx context.Context) error {
		conn, err := primary(ctx, d.main)
		if err != nil {
			var refused *pgconn.PgError
			if !errors.As(err, &refused) && ctx.Err() == nil {
				return permanent{driver.Unreachable(fmt.Errorf("%w: %w", storage.ErrInconsistent, err))}
			}
			return err
		}
		defer conn.Release()
		if conn.Conn().PgConn().CustomData()[preparedKey] == nil {
			return permanent{fmt.Errorf("%w: the pool is not configured by postgres.Prepare", storage.ErrInvalid)}
		}
		if err := d.prepare(ctx, conn.Conn(), &uncertain); err != nil {
			return err
		}
		var id driver.StoreID
		var standby bool
		err = conn.QueryRow(ctx, d.sql.id).Scan((*[16]byte)(&id), &standby)
		if standby {
			return permanent{fmt.Errorf("%w: %w", storage.ErrInconsistent, errStandby)}
		}
		d.id.Store(&id)
		if err == nil {
			var on session
			err = on.ask(ctx, conn.Conn(), d.sql, pgx.QueryExecModeExec)
			d.viaPooler.Store(on.viaPooler)
		}
		return err
	})
}

// prepare creates the tables of a store that does not exist, unless the option NoCreate forbids it, and upgrades older ones with the
// option Upgrade.
func (d *database) prepare(ctx context.Context, conn *pgx.Conn, uncertain *bool) error {
	version, err := migrations.Check(ctx, conn, d.opts.Schema)
	switch none := errors.Is(err, migrations.ErrNone); {
	case err != nil && !none:
		return schemaError(err)
	case none && d.opts.NoCreate:
		return permanent{fmt.Errorf("%w: %w; create it by opening it without create=off, or by: ashlar schema upgrade", storage.ErrNoStore, err)}
	case none || d.opts.Upgrade && version < migrations.Latest || *uncertain:
		*uncertain = true
		_, err = upgrade(ctx, conn, d.sessions.of(conn), d.sql)
		return schemaError(err)
	case version < migrations.Oldest:
		return permanent{fmt.Errorf("the store has schema version %d, this program needs %d; upgrade it by: ashlar schema upgrade, or by opening it with upgrade=auto",
			version, migrations.Oldest)}
	}
	return nil
}

// upgrade creates a store, or upgrades it to the latest version, and returns its previous version. It returns an error if the result may
// not be durable. If the store has the latest version already, upgrade proves that an earlier attempt is durable.
func upgrade(ctx context.Context, conn *pgx.Conn, on *session, sql *statements) (from int, err error) {
	on.hasWarning = false
	from, err = migrations.Up(ctx, conn, sql.schema)
	durable := true
	if err == nil && from >= migrations.Latest {
		err = conn.QueryRow(ctx, sql.proveSchema, pgx.QueryExecModeExec, from).Scan(&durable)
	}
	if err == nil && (on.hasWarning || !durable) {
		err = fmt.Errorf("upgrade the schema to version %d: %w", migrations.Latest, errUnsure)
	}
	return from, err
}

// schemaError marks the errors of a store that this program cannot use as permanent.
func schemaError(err error) error {
	if errors.Is(err, storage.ErrNewerSchema) || errors.Is(err, migrations.ErrIncompatible) {
		return permanent{err}
	}
	return err
}

// Schema is the schema version of a store.
type Schema struct {
	// Name is the name of the schema in the database.
	Name string
	// Version is the version of the store; 0 if there is none.
	Version int
	// Latest is the version that this program creates.
	Latest int
	// Oldest is the oldest version that this program works with.
	Oldest int
	// Steps are the steps that an upgrade to Latest applies.
	Steps []migrations.Step
	// Refusal is why this program can neither open nor upgrade the store, storage.ErrNewerSchema or migrations.ErrIncompatible, or nil.
	Refusal error
}

// SchemaStatus returns the schema version of the store that a URL names. It neither opens nor changes the store.
func SchemaStatus(ctx context.Context, u *url.URL) (Schema, error) {
	conn, t, err := connect(ctx, u)
	if err != nil {
		return Schema{}, err
	}
	defer closeConn(conn)
	s := Schema{Name: t.opts.Schema, Latest: migrations.Latest, Oldest: migrations.Oldest}
	s.Version, err = migrations.Check(ctx, conn, s.Name)
	switch {
	case errors.Is(err, storage.ErrNewerSchema) || errors.Is(err, migrations.ErrIncompatible):
		s.Refusal = err
		return s, nil
	case err != nil && !errors.Is(err, migrations.ErrNone):
		return Schema{}, fmt.Errorf("schema %q: %w", s.Name, err)
	}
	s.Steps, err = migrations.Plan(s.Version, s.Name)
	return s, err
}

// UpgradeSchema creates the store that a URL names, or upgrades it to the latest version, and returns its previous version, 0 for
// a new store. It returns storage.ErrNewerSchema if the store is newer than this program, and storage.ErrInconsistent if the upgrade may
// not be durable: then the caller repeats the call, which upgrades the store or proves that the upgrade is durable.
func UpgradeSchema(ctx context.Context, u *url.URL) (from int, err error) {
	conn, t, err := connect(ctx, u)
	if err != nil {
		return 0, err
	}
	defer closeConn(conn)
	from, err = upgrade(ctx, conn, new(sessions).of(conn), newStatements(t.opts.Schema))
	if errors.Is(err, errUnsure) {
		err = fmt.Errorf("%w: %w; repeat the upgrade", storage.ErrInconsistent, err)
	}
	if err != nil && !errors.Is(err, storage.ErrNewerSchema) {
		return from, fmt.Errorf("schema %q: %w", t.opts.Schema, err)
	}
	return from, err
}

func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // closes the connection even if it fails
}

func init() { scratchstore.Register(newScratch, "postgres", "postgresql") }

// newScratch returns a space of scratch stores: schemas in the database of u.
func newScratch(u *url.URL, name string) (*scratchstore.Space, error) {
	if _, err := parseURL(u); err != nil {
		return nil, err
	}
	prefix := name + "_"
	store := func(number int) *url.URL {
		other := *u
		query := other.Query()
		query.Del("create")
		query.Set("schema", fmt.Sprint(prefix, number))
		other.RawQuery = encodeQuery(query)
		return &other
	}
	return &scratchstore.Space{
		Location: "the schemas " + prefix + "…",
		Store:    store,
		Drop: func(ctx context.Context) error {
			conn, _, err := connect(ctx, store(0))
			if err != nil {
				return err
			}
			defer conn.Close(context.WithoutCancel(ctx))
			return dropSchemas(ctx, conn, prefix)
		},
	}, nil
}

// dropSchemas drops the schemas with a prefix, each in a transaction of its own: all of them together may need more locks than one
// transaction can take.
func dropSchemas(ctx context.Context, conn *pgx.Conn, prefix string) error {
	rows, err := conn.Query(ctx, "select nspname from pg_namespace where left(nspname, length($1)) = $1", pgx.QueryExecModeExec, prefix)
	if err != nil {
		return err
	}
	schemas, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, schema := range schemas {
		if err == nil {
			_, err = conn.Exec(ctx, "drop schema if exists "+pgx.Identifier{schema}.Sanitize()+" cascade", pgx.QueryExecModeExec)
		}
	}
	return err
}
