package migrate

import (
	"net/url"
	"strings"
)

// legible returns a name without what a journal or a database cannot keep as it is: the source would be closed for another name
// than the journal says.
func legible(name string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(name, "\uFFFD"), "\x00", "\uFFFD")
}

// Name returns a name for the store at a URL that may be shown to anybody: scheme, host, path, and those parameters that tell
// stores apart.
func Name(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		scheme, _, _ := strings.Cut(rawURL, ":")
		return scheme + ":…"
	}
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, Opaque: u.Opaque}
	keep := url.Values{}
	for _, name := range []string{"schema", "region"} {
		if u.Query().Has(name) {
			keep.Set(name, u.Query().Get(name))
		}
	}
	shown.RawQuery = keep.Encode()
	return shown.String()
}
