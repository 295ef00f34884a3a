package postgres

import (
	"errors"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ashlar-dev/storage"
)

func parseText(t *testing.T, text string) (*target, error) {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return parseURL(u)
}

func TestURL(t *testing.T) {
	t.Parallel()
	got, err := parseText(t, "postgresql://u:p@h:5433/d?sslmode=disable&schema=S%201&create=off&max-size=1000&timeout=2s&outage=3s&retention=7m"+
		"&poll=5s&pool_max_conns=3&application_name=x&listen="+url.QueryEscape("postgres://u:q@direct:5434/d?sslmode=disable")+
		"&replica="+url.QueryEscape("postgres://u:q@copy/d?sslmode=disable"))
	if err != nil {
		t.Fatal(err)
	}
	o := got.opts
	if o.Schema != "S 1" || !o.NoCreate || o.MaxSize != 1000 || o.Timeout != 2*time.Second || o.Outage != 3*time.Second ||
		o.Retention != 7*time.Minute || o.Poll != 5*time.Second || o.NoListen {
		t.Errorf("options: %+v", o)
	}
	if c := got.pool.ConnConfig; c.Host != "h" || c.Port != 5433 || c.Database != "d" || c.RuntimeParams["application_name"] != "x" || len(c.RuntimeParams) != 1 {
		t.Errorf("connection: %v %v %v %v", c.Host, c.Port, c.Database, c.RuntimeParams)
	}
	spaced, err := parseText(t, "postgres://u:p%20+@h/d?options="+url.QueryEscape("-c geqo=off -c work_mem=8MB")+"&application_name=a%2Bb")
	if err != nil {
		t.Fatal(err)
	}
	if c := spaced.pool.ConnConfig; c.RuntimeParams["options"] != "-c geqo=off -c work_mem=8MB" || c.RuntimeParams["application_name"] != "a+b" || c.Password != "p +" {
		t.Errorf("with spaces: %q, password %q", c.RuntimeParams, c.Password)
	}
	if got.pool.MaxConns != 3 || o.Listen.Host != "direct" || got.replica.ConnConfig.Host != "copy" {
		t.Errorf("pool of %d, listen at %s, replica %s", got.pool.MaxConns, o.Listen.Host, got.replica.ConnConfig.Host)
	}
	if got.pool.ConnConfig.ValidateConnect == nil || got.replica.ConnConfig.ValidateConnect != nil {
		t.Error("a primary must be a primary, a replica may be anything")
	}
}

// TestURLSpaces passes on values with spaces and plus signs.
func TestURLSpaces(t *testing.T) {
	t.Parallel()
	const text = `-c a=b\ c+d`
	inner := "postgres://h/d?options=" + url.QueryEscape(text) + "&password=" + url.QueryEscape("p q+r")
	got, err := parseText(t, inner+"&replica="+url.QueryEscape(inner))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*pgxpool.Config{"pool": got.pool, "replica": got.replica} {
		if options, password := c.ConnConfig.RuntimeParams["options"], c.ConnConfig.Password; options != text || password != "p q+r" {
			t.Errorf("%s: options %q, password %q", name, options, password)
		}
	}
}

func TestURLRefusals(t *testing.T) {
	t.Parallel()
	const secret = "hunter22"
	for query, names := range map[string][]string{
		"shema=x":                                {"shema", "schema", "sslmode", "pool_max_conns"},
		"timeout=never":                          {"timeout"},
		"timeout=-1s":                            {"timeout"},
		"retention=4m59s":                        {"retention", "5m0s or more"},
		"max-size=0":                             {"max-size"},
		"max-size=1048577":                       {"max-size"},
		"create=maybe":                           {"create"},
		"schema=":                                {"schema"},
		"schema=pg_x":                            {"schema"},
		"schema=" + strings.Repeat("x", 64):      {"schema"},
		"schema=a&schema=b":                      {"schema"},
		"listen=maybe":                           {"listen"},
		"listen=postgres://h/d?poll=1s":          {"listen", "poll"},
		"replica=mysql://h/d":                    {"replica"},
		"pool_max_conns=none":                    {"pool_max_conns"},
		"sslmode=perhaps":                        {"sslmode"},
		"sslmode=perhaps&password=" + secret:     nil,
		"search_path=x":                          {"search_path"},
		"default_query_exec_mode=odd":            {"default_query_exec_mode"},
		"port=" + secret + "&password=" + secret: nil,
	} {
		_, err := parseText(t, "postgres://u:"+secret+"@h/d?"+query)
		if !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("%s: %v, expected ErrInvalid", query, err)
			continue
		}
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error contains a password: %v", query, err)
		}
		for _, name := range names {
			if !strings.Contains(err.Error(), name) {
				t.Errorf("%s: the error does not name %s: %v", query, name, err)
			}
		}
	}
}

// TestUnescapedPassword checks that a URL whose password contains a raw slash is refused, and that no part of the password is in the error.
func TestUnescapedPassword(t *testing.T) {
	t.Parallel()
	for _, password := range []string{"p@secret/word", "1/secret", "1/2/secret", "p@secret/1@2"} {
		for _, text := range []string{
			"postgres://user:" + password + "@host/db",
			"postgres://host/db?listen=" + url.QueryEscape("postgres://user:"+password+"@host/db"),
			"postgres://host/db?replica=" + url.QueryEscape("postgres://user:"+password+"@host/db"),
		} {
			if _, err := parseText(t, text); !errors.Is(err, storage.ErrInvalid) || strings.Contains(err.Error(), "secret") ||
				!strings.Contains(err.Error(), "%2F for /") {
				t.Errorf("%s: %v, expected ErrInvalid that describes the escapes", text, err)
			}
		}
	}
}

// TestREADME compares the table of parameters with the code.
func TestREADME(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for line := range strings.Lines(string(readme)) {
		first, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|")
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		for i, part := range strings.Split(first, "`") {
			if i%2 == 1 {
				documented = append(documented, part)
			}
		}
	}
	known := append(slices.Clone(connectionParameters), "schema", "create", "upgrade", "max-size", "timeout", "outage", "retention", "poll", "latency", "log", "listen", "replica")
	slices.Sort(documented)
	slices.Sort(known)
	if !slices.Equal(documented, known) {
		t.Errorf("documented: %v\n     known: %v", documented, known)
	}
}

// TestRetentionOfTokens sets a retention that is shorter than the lifetime of continue tokens.
func TestRetentionOfTokens(t *testing.T) {
	t.Parallel()
	for given, want := range map[time.Duration]time.Duration{0: time.Hour, time.Second: 5 * time.Minute, 6 * time.Minute: 6 * time.Minute} {
		if got := (&Options{Retention: given}).withDefaults().Retention; got != want {
			t.Errorf("retention is %v, given was %v, expected %v", got, given, want)
		}
	}
}
