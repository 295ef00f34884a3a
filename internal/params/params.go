// Package params reads the parameters of a store's URL. It collects the first mistake, knows which parameters were asked for,
// and refuses the rest by name. No error shows a value of the URL's user-info.
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

// Values are the parameters of one URL. Ask for each by its type, then call Err.
type Values struct {
	raw   string
	query url.Values
	known []string
	err   error
}

// Parse reads the query of u. A fragment is a mistake: no store's URL has one.
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

// get returns the text of a parameter, and whether it is there.
func (v *Values) get(name string) (string, bool) {
	v.known = append(v.known, name)
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

// Int returns a whole number from low to high.
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

// shortest is the least value of a duration. Less is a mistake, a bare number of nanoseconds for one, that nothing works with:
// requests that are over before they are sent, tickers that never rest, or, halved a few times, panic.
const shortest = time.Millisecond

// Duration returns a time such as 30s or 5m, of a millisecond at least.
func (v *Values) Duration(name string, otherwise time.Duration) time.Duration {
	return v.DurationFrom(name, otherwise, shortest)
}

// DurationFrom is Duration for a parameter that is not less than a bound.
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

// Rest returns the parameters that nobody asked for, and takes them as known. For adapters that pass parameters on.
func (v *Values) Rest() url.Values {
	rest := url.Values{}
	for name, values := range v.query {
		if !slices.Contains(v.known, name) {
			rest[name] = values
		}
	}
	for name := range rest {
		v.known = append(v.known, name)
	}
	return rest
}

// Err returns the first mistake: a malformed value, or a parameter that is not known.
func (v *Values) Err() error {
	if v.err != nil {
		return v.err
	}
	var unknown []string
	for name := range v.query {
		if !slices.Contains(v.known, name) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	known := slices.Clone(v.known)
	slices.Sort(known)
	return Unknown(v.raw, unknown[0], known)
}

// Unknown is the error for a parameter of a query that is none of those known. Where an @ stands in the query it may be the rest of
// a password with a ? in it that nobody escaped: then the error does not show it.
func Unknown(query, name string, known []string) error {
	if strings.Contains(query, "@") {
		return fmt.Errorf("%w: unknown URL parameter (or a ? in the password, which is written %%3F), expected one of %s",
			storage.ErrInvalid, strings.Join(known, ", "))
	}
	return fmt.Errorf("%w: unknown URL parameter %q, expected one of %s", storage.ErrInvalid, name, strings.Join(known, ", "))
}
