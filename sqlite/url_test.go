package sqlite

import (
	"errors"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

func TestURLs(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"sqlite:///var/lib/store.db":         "/var/lib/store.db",
		"sqlite:/var/lib/store.db":           "/var/lib/store.db",
		"sqlite:store.db":                    "store.db",
		"sqlite:./store.db":                  "./store.db",
		"sqlite:../data/store.db":            "../data/store.db",
		"sqlite:a%20b%3Fc.db?create=off":     "a b?c.db",
		"sqlite:///a%20b%23c.db?timeout=5s":  "/a b#c.db",
		"sqlite:///x.db?readers=3":           "/x.db",
		"sqlite://":                          "",
		"sqlite:":                            "",
		"sqlite:///":                         "",
		"sqlite:///folder/":                  "",
		"sqlite://host/x.db":                 "",
		"sqlite://relative.db":               "",
		"sqlite://user:secret@/x.db":         "",
		"sqlite::memory:":                    "",
		"sqlite:///x%00.db":                  "",
		"sqlite:%zz":                         "",
		"sqlite:x.db?unknown=1":              "",
		"sqlite:x.db?Create=off":             "",
		"sqlite:x.db?create=maybe":           "",
		"sqlite:x.db?create=off&create=on":   "",
		"sqlite:x.db?timeout=0":              "",
		"sqlite:x.db?timeout=soon":           "",
		"sqlite:x.db?outage=-1s":             "",
		"sqlite:x.db?max-size=1048577":       "",
		"sqlite:x.db?max-size=0":             "",
		"sqlite:x.db?retention=1":            "",
		"sqlite:x.db?retention=4m59s":        "",
		"sqlite:x.db?retention=5m":           "x.db",
		"sqlite:x.db?retention-rows=many":    "",
		"sqlite:x.db?retention-bytes=1":      "",
		"sqlite:x.db?readers=0":              "",
		"sqlite:x.db?max-size=%zz":           "",
		"sqlite:x.db?max-size=1048576":       "x.db",
		"sqlite:x.db?retention-rows=1000000": "x.db",
	} {
		u, err := url.Parse(raw)
		if err != nil {
			if want != "" {
				t.Errorf("%s: %v", raw, err)
			}
			continue // storage.Open rejects it
		}
		path, _, err := parseURL(u)
		switch {
		case want == "" && !errors.Is(err, storage.ErrInvalid):
			t.Errorf("%s: got error %v, expected ErrInvalid", raw, err)
		case want == "" && strings.Contains(err.Error(), "secret"):
			t.Errorf("%s: the error contains the password: %v", raw, err)
		case want != "" && (err != nil || path != want):
			t.Errorf("%s: got path %q, error %v; expected %q", raw, path, err, want)
		}
	}
}

func TestURLOptions(t *testing.T) {
	t.Parallel()
	u, err := url.Parse("sqlite:x.db?create=off&timeout=1s&outage=2s&max-size=3&retention=7m&retention-rows=5&retention-bytes=67108865&readers=6")
	if err != nil {
		t.Fatal(err)
	}
	_, got, err := parseURL(u)
	want := Options{
		NoCreate: true, Timeout: time.Second, Outage: 2 * time.Second, MaxSize: 3, Retention: 7 * time.Minute, RetentionRows: 5, RetentionBytes: 67108865, Readers: 6,
	}
	if err != nil || got != want {
		t.Fatalf("got options %+v, error %v; expected %+v", got, err, want)
	}
	u, err = url.Parse("sqlite:x.db")
	if err != nil {
		t.Fatal(err)
	}
	_, got, err = parseURL(u)
	if err != nil || got != (&Options{}).withDefaults() {
		t.Fatalf("got options %+v, error %v; expected the defaults %+v", got, err, (&Options{}).withDefaults())
	}
}

// The table in the README lists exactly the parameters of a URL.
func TestREADMEListsParameters(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(string(readme), -1) {
		listed = append(listed, row[1])
	}
	slices.Sort(listed)
	_, _, err = parseURL(&url.URL{Scheme: "sqlite", Opaque: "x.db", RawQuery: "unknown=1"})
	_, list, found := strings.Cut(err.Error(), "expected one of ")
	if !found {
		t.Fatalf("the error does not list the parameters: %v", err)
	}
	if known := strings.Split(list, ", "); !slices.Equal(known, listed) {
		t.Errorf("the README lists %v, the parameters are %v", listed, known)
	}
}

// The shortest durations that a URL accepts work.
func TestShortTimes(t *testing.T) {
	t.Parallel()
	b, err := storage.Open(t.Context(), "sqlite:"+newPath(t)+"?outage=1ms&retention=5m")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s := b.(*Backend)
	w := fixture.WatchChanges(t, s)
	wantUpsert(t, w, fixture.Write(t, s, resource("a", 1)))
}

// A retention below the lifetime of continue tokens is raised to it.
func TestRetentionOfTokens(t *testing.T) {
	t.Parallel()
	for given, want := range map[time.Duration]time.Duration{0: time.Hour, time.Second: 5 * time.Minute, 6 * time.Minute: 6 * time.Minute} {
		if got := (&Options{Retention: given}).withDefaults().Retention; got != want {
			t.Errorf("retention is %v with option %v, expected %v", got, given, want)
		}
	}
}
