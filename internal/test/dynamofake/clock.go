package dynamofake

import (
	"net/http"
	"strings"
	"time"
)

// signatureLife is for how long AWS accepts a signature, at most.
const signatureLife = 15 * time.Minute

// Now is the server's time, which it puts into the Date of its answers and into the records of the stream.
func (s *Server) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now()
}

func (s *Server) now() time.Time { return time.Now().Add(s.ahead) }

// Advance sets the server's clock forward, or back: either time passes, or the clocks of its clients are wrong.
func (s *Server) Advance(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead += by
}

// checkSignature refuses a request that is carried out too long after, or before, the time that its client signed it with.
func (s *Server) checkSignature(signed time.Time) error {
	if off := s.now().Sub(signed); off > signatureLife || off < -signatureLife {
		return refuse("InvalidSignatureException", "Signature expired, or not yet current: %v is too far from %v", signed, s.now())
	}
	return nil
}

// credential is the name with which a request was signed.
func credential(r *http.Request) string {
	_, rest, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
	name, _, _ := strings.Cut(rest, "/")
	return name
}
