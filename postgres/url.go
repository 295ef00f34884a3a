package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/dial"
	"github.com/ashlar-dev/storage/internal/params"
	"github.com/ashlar-dev/storage/telemetry"
)

// connectionParameters are the URL parameters that are passed on to libpq, pgx or the server, with their meaning there.
var connectionParameters = []string{
	// Server and user.
	"host", "port", "database", "dbname", "user", "password", "passfile", "service", "servicefile", "target_session_attrs", "connect_timeout",
	// Encryption and authentication.
	"sslmode", "sslkey", "sslcert", "sslcertmode", "sslrootcert", "sslnegotiation", "sslpassword", "sslsni", "krbspn", "krbsrvname",
	"min_protocol_version", "max_protocol_version", "channel_binding", "require_auth",
	// Execution of queries by pgx, and its pool.
	"default_query_exec_mode", "statement_cache_capacity", "description_cache_capacity",
	"pool_max_conns", "pool_min_conns", "pool_min_idle_conns", "pool_max_conn_lifetime", "pool_max_conn_lifetime_jitter",
	"pool_max_conn_idle_time", "pool_health_check_period", "pool_ping_timeout",
	// The server's session.
	"application_name", "options", "statement_timeout", "idle_in_transaction_session_timeout", "tcp_user_timeout", "synchronous_commit",
}

// defaultConns is the default size of the pool: batches need few connections.
const defaultConns = 8

// target is a parsed URL.
type target struct {
	opts    Options
	pool    *pgxpool.Config
	replica *pgxpool.Config // nil: none
}

// parseURL parses the URL of a store. Its errors contain no password.
func parseURL(u *url.URL) (*target, error) {
	if u == nil {
		return nil, fmt.Errorf("%w: the URL is nil", storage.ErrInvalid)
	}
	if u.Fragment != "" {
		return nil, fmt.Errorf("%w: the URL of a store must not have a fragment", storage.ErrInvalid)
	}
	if err := params.CheckCredentials(u); err != nil {
		return nil, err
	}
	v := params.Parse(u)
	t := &target{opts: Options{
		Schema:    v.String("schema", defaultSchema),
		NoCreate:  !v.OnOff("create", true),
		Upgrade:   v.Choice("upgrade", "off", "auto", "off") == "auto",
		MaxSize:   v.Int("max-size", driver.MaxSize, 1, driver.MaxSize),
		Timeout:   v.Duration("timeout", 0),
		Outage:    v.Duration("outage", 0),
		Retention: v.DurationFrom("retention", 0, driver.TokenLifetime),
		Poll:      v.Duration("poll", 0),
		Latency:   v.Duration("latency", 0),
		Telemetry: telemetry.Options{Logger: v.Logger()},
	}}
	listen, replica := v.String("listen", "on"), v.String("replica", "")
	rest := url.Values{}
	for _, name := range connectionParameters {
		value := v.String(name, "") // also registers an absent parameter as known
		if u.Query().Has(name) {
			rest.Set(name, value)
		}
	}
	if err := v.Err(); err != nil {
		return nil, err
	}
	if err := checkSchema(t.opts.Schema); err != nil {
		return nil, err
	}
	bare := *u
	bare.RawQuery = encodeQuery(rest)
	var err error
	if t.pool, err = poolConfig(&bare); err != nil {
		return nil, err
	}
	switch listen {
	case "on", "true":
	case "off", "false":
		t.opts.NoListen = true
	default:
		config, err := secondConfig("listen", listen)
		if err != nil {
			return nil, err
		}
		t.opts.Listen = config.ConnConfig
	}
	if listen != "on" && listen != "true" && !rest.Has("default_query_exec_mode") {
		// A pooler may not keep prepared statements.
		t.pool.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	if replica != "" {
		if t.replica, err = secondConfig("replica", replica); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// dialWith makes all connections of the store use f.
func (t *target) dialWith(f dial.Func) {
	t.pool.ConnConfig.DialFunc = f
	if t.opts.Listen != nil {
		t.opts.Listen.DialFunc = f
	}
	if t.replica != nil {
		t.replica.ConnConfig.DialFunc = f
	}
}

// encodeQuery encodes parameters for pgx, which, like libpq, does not decode a plus sign as a space.
func encodeQuery(v url.Values) string { return strings.ReplaceAll(v.Encode(), "+", "%20") }

// secondConfig parses a URL in a parameter of the URL.
func secondConfig(name, text string) (*pgxpool.Config, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return nil, fmt.Errorf("%w: URL parameter %s: expected a URL that begins with postgres://, its special characters escaped as in any parameter",
			storage.ErrInvalid, name)
	}
	for parameter := range u.Query() {
		if !slices.Contains(connectionParameters, parameter) {
			return nil, fmt.Errorf("URL parameter %s: %w", name, params.Unknown(u.RawQuery, parameter, connectionParameters))
		}
	}
	config, err := poolConfig(u)
	if err != nil {
		return nil, fmt.Errorf("URL parameter %s: %w", name, err)
	}
	if name == "replica" {
		config.ConnConfig.ValidateConnect = nil
	}
	return config, nil
}

// poolConfig parses a URL with only parameters that pgx supports.
func poolConfig(u *url.URL) (*pgxpool.Config, error) {
	if err := params.CheckCredentials(u); err != nil {
		return nil, err
	}
	secrets := []string{u.Query().Get("password"), u.Query().Get("sslpassword")}
	if password, set := u.User.Password(); set {
		secrets = append(secrets, password, url.QueryEscape(password), url.PathEscape(password))
	}
	plain := *u
	plain.Scheme = "postgres"
	query := plain.Query()
	if !query.Has("pool_max_conns") {
		query.Set("pool_max_conns", fmt.Sprint(defaultConns))
	}
	if !query.Has("application_name") {
		query.Set("application_name", "ashlar")
	}
	if !query.Has("pool_ping_timeout") {
		query.Set("pool_ping_timeout", silenceTimeout.String())
	}
	plain.RawQuery = encodeQuery(query)
	config, err := pgxpool.ParseConfig(plain.String())
	if err != nil {
		return nil, fmt.Errorf("%w: %s", storage.ErrInvalid, withoutSecrets(err, secrets))
	}
	Prepare(config)
	if config.ConnConfig.ValidateConnect == nil {
		// A former primary that returned as a standby must not answer strong reads.
		config.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	}
	return config, nil
}

// withoutSecrets returns the text of an error about a URL, without the URL, and without secrets that the text repeats.
func withoutSecrets(err error, secrets []string) string {
	const general = "malformed Postgres URL"
	text := err.Error()
	if end := strings.LastIndex(text, "`: "); end >= 0 {
		text = text[end+3:]
	}
	for _, secret := range secrets {
		if secret != "" && strings.Contains(text, secret) {
			return general
		}
	}
	return general + ": " + text
}

// connect opens the pools of a store: its own, and the pool of the replica, if there is one. They outlive ctx.
func (t *target) connect(ctx context.Context) (pools []*pgxpool.Pool, err error) {
	for _, config := range []*pgxpool.Config{t.pool, t.replica} {
		if config == nil {
			continue
		}
		pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), config)
		if err != nil {
			return pools, errors.New("open a connection pool: " + withoutSecrets(err, nil))
		}
		pools = append(pools, pool)
	}
	if len(pools) > 1 {
		t.opts.Replica = pools[1]
	}
	return pools, nil
}

// connect opens one connection to the store of a URL, for work on its schema.
func connect(ctx context.Context, u *url.URL) (*pgx.Conn, *target, error) {
	t, err := parseURL(u)
	if err != nil {
		return nil, nil, err
	}
	if t.pool.ConnConfig.ConnectTimeout == 0 {
		t.pool.ConnConfig.ConnectTimeout = 30 * time.Second
	}
	prepareConn(t.pool.ConnConfig)
	conn, err := pgx.ConnectConfig(ctx, t.pool.ConnConfig)
	if err != nil {
		return nil, nil, driver.Unreachable(fmt.Errorf("%w: %w", storage.ErrInconsistent, err))
	}
	return conn, t, nil
}
