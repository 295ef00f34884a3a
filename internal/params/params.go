// Package params parses the parameters of a store's URL. It collects the first error, records the requested parameters, and refuses
// all others by name. No error contains the URL's user-info.
package params

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ashlar-dev/storage"
)

// Values are the parameters of one URL. Read each by its type, then call Err.
type Values struct {
	raw   string
	query url.Values
	names []string
	err   error
}

// Parse parses the query of u. A fragment is an error.
func Parse(u *url.URL) *Values {
	v := &Values{raw: u.RawQuery}
	if u.Fragment != "" {
		v.err = fmt.Errorf("%w: a store's URL has no fragment (write %%23 for a # in it)", storage.ErrInvalid)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil && v.err == nil {
		v.err = fmt.Errorf("%w: malformed URL parameters", storage.ErrInvalid)
	}
	v.query = query
	return v
}

func (v *Values) fail(name, expected string) {
	if v.err == nil {
		v.err = fmt.Errorf("%w: URL parameter %s: expected %s", storage.ErrInvalid, name, expected)
	}
}

// get returns the text of a parameter and whether it is set.
func (v *Values) get(name string) (string, bool) {
	v.names = append(v.names, name)
	values, there := v.query[name]
	if len(values) > 1 {
		v.fail(name, "one value, not several")
	}
	if !there {
		return "", false
	}
	return values[0], true
}

// String returns a text.
func (v *Values) String(name, otherwise string) string {
	if s, there := v.get(name); there {
		return s
	}
	return otherwise
}

// Choice returns one of several texts.
func (v *Values) Choice(name, otherwise string, choices ...string) string {
	s, there := v.get(name)
	if !there {
		return otherwise
	}
	if !slices.Contains(choices, s) {
		v.fail(name, "one of "+strings.Join(choices, ", "))
	}
	return s
}

// OnOff returns a switch: on, off, true or false.
func (v *Values) OnOff(name string, otherwise bool) bool {
	s, there := v.get(name)
	if !there {
		return otherwise
	}
	switch s {
	case "on", "true":
		return true
	case "off", "false":
		return false
	}
	v.fail(name, "on or off")
	return otherwise
}

// Int returns an integer from low to high.
func (v *Values) Int(name string, otherwise, low, high int) int {
	s, there := v.get(name)
	if !there {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < low || n > high {
		v.fail(name, fmt.Sprintf("a whole number from %d to %d", low, high))
		return otherwise
	}
	return n
}

// minDuration is the minimum of a duration. A shorter one, for example a bare number of nanoseconds, is an error: requests would
// expire before they are sent, and tickers would never pause or, after some halvings, panic.
const minDuration = time.Millisecond

// Duration returns a duration such as 30s or 5m, of at least a millisecond.
func (v *Values) Duration(name string, otherwise time.Duration) time.Duration {
	return v.DurationFrom(name, otherwise, minDuration)
}

// DurationFrom is Duration with a lower bound.
func (v *Values) DurationFrom(name string, otherwise, least time.Duration) time.Duration {
	s, there := v.get(name)
	if !there {
		return otherwise
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < least {
		v.fail(name, fmt.Sprintf("a time such as 30s or 5m, %v or more", least))
		return otherwise
	}
	return d
}

// Rest returns the parameters that were not read, and marks them as known. It is for adapters that pass parameters on.
func (v *Values) Rest() url.Values {
	rest := url.Values{}
	for name, values := range v.query {
		if !slices.Contains(v.names, name) {
			rest[name] = values
		}
	}
	for name := range rest {
		v.names = append(v.names, name)
	}
	return rest
}

// Err returns the first error: a malformed value or an unknown parameter.
func (v *Values) Err() error {
	if v.err != nil {
		return v.err
	}
	var unknown []string
	for name := range v.query {
		if !slices.Contains(v.names, name) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	known := slices.Clone(v.names)
	slices.Sort(known)
	return Unknown(v.raw, unknown[0], known)
}

// CheckCredentials refuses a URL with an unescaped @ in its path. The @ most likely ends a password with an unescaped /, and the host is
// then a piece of this password, which must appear neither in an error nor in a DNS query. The error contains no part of the URL.
func CheckCredentials(u *url.URL) error {
	if u.Host == "" || !strings.Contains(u.EscapedPath(), "@") {
		return nil
	}
	return fmt.Errorf("%w: the %s URL has an @ in its path: write %%40 for it, and in a password %%40 for @, %%2F for /, %%3F for ? and %%23 for #",
		storage.ErrInvalid, u.Scheme)
}

// Unknown returns the error for an unknown parameter of a query. If the query contains an @, it may be the rest of a password with
// an unescaped ?, so the error does not contain it.
func Unknown(query, name string, known []string) error {
	if strings.Contains(query, "@") {
		return fmt.Errorf("%w: unknown URL parameter (or a ? in the password, which is written %%3F), expected one of %s",
			storage.ErrInvalid, strings.Join(known, ", "))
	}
	return fmt.Errorf("%w: unknown URL parameter %q, expected one of %s", storage.ErrInvalid, name, strings.Join(known, ", "))
}
