package postgres

import (
	"context"
	"fmt"
	"net/url"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage/internal/scratchstore"
)

func init() { scratchstore.Register(newScratch, "postgres", "postgresql") }

// newScratch names schemas in the database of u.
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

// dropSchemas drops those whose name begins so, each in a transaction of its own: together they may hold more locks than one may
// take.
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
