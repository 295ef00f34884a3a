package migrate

import (
	"net/url"
	"strings"
)

// legible removes characters from a name that a journal or a database cannot store: otherwise the fence would have a different name
// than the journal.
func legible(name string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(name, "\uFFFD"), "\x00", "\uFFFD")
}

// Name returns a display name for the store at a URL, without secrets: scheme, host, path, and the parameters that distinguish
// stores. A parameter with an @ is omitted, because the text before may be a password.
func Name(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		scheme, _, _ := strings.Cut(rawURL, ":")
		return scheme + ":…"
	}
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, Opaque: u.Opaque}
	keep := url.Values{}
	for _, name := range []string{"schema", "host", "port", "database", "dbname", "service", "region", "endpoint", "profile", "role-arn"} {
		if value := u.Query().Get(name); u.Query().Has(name) && !strings.Contains(value, "@") {
			keep.Set(name, value)
		}
	}
	shown.RawQuery = keep.Encode()
	return shown.String()
}
