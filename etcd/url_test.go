package etcd

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
)

func parse(t *testing.T, raw string) (*target, error) {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return parseURL(u)
}

func TestURL(t *testing.T) {
	t.Parallel()
	got, err := parse(t, "etcd://app:secret@one:2379,two:2380,10.0.0.3:4000/control/plane?timeout=3s&max-size=1000&max-txn-ops=256&max-request-bytes=2000000&outage=1m&create=off&dial-timeout=2s")
	if err != nil {
		t.Fatal(err)
	}
	want := Options{
		Prefix: "control/plane", Timeout: 3 * time.Second, MaxSize: 1000, MaxTxnOps: 256, MaxRequestBytes: 2000000,
		Outage: time.Minute, NoCreate: true,
	}
	if got.options != want {
		t.Errorf("options %+v, want %+v", got.options, want)
	}
	if endpoints := []string{"http://one:2379", "http://two:2380", "http://10.0.0.3:4000"}; !slices.Equal(got.endpoints, endpoints) {
		t.Errorf("endpoints %v, want %v", got.endpoints, endpoints)
	}
	if got.user != "app" || got.password != "secret" || got.tls != nil || got.dialTimeout != 2*time.Second {
		t.Errorf("user %q, password %q, TLS %v, dial timeout %v", got.user, got.password, got.tls, got.dialTimeout)
	}

	got, err = parse(t, "etcds://host?server-name=other&insecure=on")
	if err != nil {
		t.Fatal(err)
	}
	if got.options.Prefix != "ashlar" || got.tls == nil || got.tls.serverName != "other" || !got.tls.insecure || got.endpoints[0] != "https://host:2379" {
		t.Errorf("%+v, TLS %+v", got, got.tls)
	}
}

func TestPasswordFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("from-a-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := parse(t, "etcd://app@host/p?password-file="+url.QueryEscape(file))
	if err != nil || got.password != "from-a-file" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestMalformedURLs(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"etcd:",
		"etcd:///prefix",
		"etcd:host/prefix",
		"etcd://one:2379,,two:2379/prefix",
		"etcd://host/prefix#fragment",
		"etcd://host/prefix?unknown=1",
		"etcd://host/prefix?timeout=soon",
		"etcd://host/prefix?timeout=1s&timeout=2s",
		"etcd://host/prefix?create=perhaps",
		"etcd://host/prefix?max-size=0",
		"etcd://host/prefix?max-size=1048577",
		"etcd://host/prefix?max-txn-ops=99",
		"etcd://host/prefix?max-request-bytes=1000",
		"etcd://host/prefix?ca=file",
		"etcd://host/%00",
		"etcd://host/" + strings.Repeat("p", 256),
		"etcd://user@host/prefix",
		"etcd://:secret@host/prefix",
		"etcd://user:secret@host/prefix?password-file=x",
		"etcd://user@host/prefix?password-file=/does/not/exist",
		"etcds://host/prefix?cert=only",
		"etcd://user:p@secret/word@host/prefix",
		"etcd://user:1/secret@host/prefix",
		"etcd://user:1/2/secret@host",
	} {
		_, err := parse(t, raw)
		if !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", raw, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error contains the password: %v", raw, err)
		}
	}
}

// README.md documents exactly the URL parameters of the code.
func TestREADME(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		documented = append(documented, m[1])
	}
	slices.Sort(documented)
	_, err = parse(t, "etcds://host/prefix?unknown=1")
	_, list, _ := strings.Cut(err.Error(), "expected one of ")
	known := strings.Split(list, ", ")
	if !slices.Equal(documented, known) {
		t.Errorf("README.md documents %v, the code has %v", documented, known)
	}
}
