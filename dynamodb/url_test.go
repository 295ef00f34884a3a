package dynamodb

import (
	"errors"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-dev/storage"
)

// The README's table of URL parameters equals the parameters of the code.
func TestReadmeParameters(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(string(readme), -1) {
		documented = append(documented, row[1])
	}
	u, _ := url.Parse("dynamodb://table?no-such-parameter=1")
	_, _, err = parseURL(u)
	if !errors.Is(err, storage.ErrInvalid) {
		t.Fatalf("an unknown parameter: %v", err)
	}
	_, list, _ := strings.Cut(err.Error(), "expected one of ")
	known := strings.Split(list, ", ")
	slices.Sort(documented)
	if !slices.Equal(documented, known) {
		t.Errorf("the README has %v, the code %v", documented, known)
	}
}

func TestURLs(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"dynamodb://", "dynamodb:table", "dynamodb://ab", "dynamodb://table:8000", "dynamodb://name:word@table", "dynamodb://name@table",
		"dynamodb://table?poll=x", "dynamodb://table?outage=13h", "dynamodb://table?max-size=2000000", "dynamodb://table?create=maybe",
		"dynamodb://table?endpoint=localhost:8000", "dynamodb://table?endpoint=http://name:word@host", "dynamodb://table?tags=a",
		"dynamodb://table/a%00b", "dynamodb://table?region=a&region=b", "dynamodb://table?",
	} {
		u, err := url.Parse(bad)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = parseURL(u)
		if bad == "dynamodb://table?" {
			if err != nil {
				t.Errorf("%s: %v", bad, err)
			}
			continue
		}
		if !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("%s: got %v, expected ErrInvalid", bad, err)
		} else if strings.Contains(err.Error(), "word") {
			t.Errorf("%s: the error contains a secret: %v", bad, err)
		}
	}
	u, _ := url.Parse("dynamodb://Table.x/some/prefix?region=r&tags=a:b,c:&create=off&pitr=on&fips=on")
	opts, s, err := parseURL(u)
	if err != nil {
		t.Fatal(err)
	}
	if opts.Table != "Table.x" || opts.Prefix != "some/prefix" || !opts.NoCreate || !opts.PointInTimeRecovery || s.region != "r" || !s.fips ||
		opts.Tags["a"] != "b" || len(opts.Tags) != 2 {
		t.Errorf("got %+v, %+v", opts, s)
	}
}
