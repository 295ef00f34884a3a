package conformance

import (
	"net/url"
	"strings"

	"github.com/ashlar-dev/storage"
)

var urlCases = topic{"URL", []testCase{
	{name: "Bad", needs: needURL, run: urlBad},
	{name: "MaxSize", needs: needURL, run: urlMaxSize},
	{name: "OutlivesContext", needs: needURL, run: urlOutlivesContext},
	{name: "ContextOver", needs: needURL, run: urlContextCancelled},
}}

// withParameter returns the store's URL with one parameter added or replaced.
func withParameter(s *suite, parameter, value string) string {
	before, query, _ := strings.Cut(s.url, "?")
	parts := []string{parameter + "=" + url.QueryEscape(value)}
	for part := range strings.SplitSeq(query, "&") {
		if name, _, _ := strings.Cut(part, "="); part != "" && name != parameter {
			parts = append(parts, part)
		}
	}
	return before + "?" + strings.Join(parts, "&")
}

func urlBad(s *suite) {
	var secrets []string
	if u, err := url.Parse(s.url); err == nil {
		if password, ok := u.User.Password(); ok && password != "" {
			secrets = append(secrets, password)
		}
	}
	for what, bad := range map[string]string{
		"an unknown parameter":        withParameter(s, "no-such-parameter", "1"),
		"a malformed size":            withParameter(s, "max-size", "many"),
		"a negative size":             withParameter(s, "max-size", "-1"),
		"a malformed duration":        withParameter(s, "timeout", "soon"),
		"a malformed switch":          withParameter(s, "create", "perhaps"),
		"a fragment":                  s.url + "#fragment",
		"a query that does not parse": withParameter(s, "max-size", "1") + "&%zz=1",
	} {
		b, err := storage.Open(s.ctx, bad)
		if err == nil {
			s.closeAtEnd(b)
		}
		s.wantError("Open with "+what, err, storage.ErrInvalid)
		for _, secret := range secrets {
			if strings.Contains(err.Error(), secret) {
				s.Errorf("Open with %s: the error shows the password: %v", what, err)
			}
		}
	}
	_, err := storage.Open(s.ctx, withParameter(s, "no-such-parameter", "1"))
	if err == nil || !strings.Contains(err.Error(), "no-such-parameter") {
		s.Errorf("Open with an unknown parameter: the error does not name it: %v", err)
	}
	s.checkStored(s.create("unharmed"))
}

func urlMaxSize(s *suite) {
	stored := s.write(withSize(newThing("large"), 2000))
	const lowered = 1000
	b, err := storage.Open(s.ctx, withParameter(s, "max-size", "1000"))
	s.noError("Open with max-size", err)
	s.closeAtEnd(b)
	_, err = b.WriteCAS(s.ctx, withSize(newThing("a"), lowered+1))
	s.wantError("WriteCAS above max-size", err, storage.ErrTooLarge)
	res, err := b.WriteCAS(s.ctx, withSize(newThing("a"), lowered))
	s.noError("WriteCAS of exactly max-size", err)
	s.checkStored(res)
	// Stored resources above the limit can be read.
	got, err := b.Read(s.ctx, strong, stored.Id)
	s.noError("Read of a resource above max-size", err)
	s.equal("Read of a resource above max-size", got, stored)
}

func urlOutlivesContext(s *suite) {
	ctx, cancel := s.timeoutContext()
	b, err := storage.Open(ctx, withParameter(s, "create", "off"))
	cancel()
	s.noError("Open of a store that exists, with create=off", err)
	s.closeAtEnd(b)
	s.b = b
	w := s.watchAll()
	res := s.create("a")
	s.expectUpsert(w, res)
	s.checkStored(res)
}

func urlContextCancelled(s *suite) {
	b, err := storage.Open(cancelledContext(), s.url)
	if err == nil {
		s.closeAtEnd(b)
		s.Fatal("Open with a cancelled context succeeded")
	}
}
