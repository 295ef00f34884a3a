package storage

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// Opener opens the backend at a URL with the scheme for which the opener was registered.
type Opener = func(ctx context.Context, u *url.URL) (Backend, error)

// Mux is a set of openers by URL scheme. The zero value is ready to use and safe for concurrent use.
type Mux struct {
	mu      sync.RWMutex
	openers map[string]Opener
}

var defaultMux Mux

// Open opens the store at rawURL with the adapter registered for its scheme. Import adapters for their side effect:
//
//	import _ "github.com/ashlar-dev/storage/sqlite"
//
// An unknown scheme, a fragment or an unknown parameter is [ErrInvalid]. Errors never contain a password. The context bounds the
// call only.
func Open(ctx context.Context, rawURL string) (Backend, error) { return defaultMux.Open(ctx, rawURL) }

// Register registers an adapter for [Open]. Adapters call it from an init function. It panics if the scheme is empty or already
// registered.
func Register(scheme string, open func(ctx context.Context, u *url.URL) (Backend, error)) {
	defaultMux.Register(scheme, open)
}

// Register adds an opener. It panics if the scheme is empty or already registered, or if the opener is nil.
func (m *Mux) Register(scheme string, open Opener) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if scheme == "" || open == nil {
		panic("storage: Register needs a scheme and an opener")
	}
	if _, taken := m.openers[scheme]; taken {
		panic("storage: Register called twice for scheme " + scheme)
	}
	if m.openers == nil {
		m.openers = make(map[string]Opener)
	}
	m.openers[scheme] = open
}

// Schemes returns the registered schemes in alphabetical order.
func (m *Mux) Schemes() []string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	schemes := make([]string, 0, len(m.openers))
	for s := range m.openers {
		schemes = append(schemes, s)
	}
	slices.Sort(schemes)
	return schemes
}

// Open opens the store at rawURL. See the function [Open].
func (m *Mux) Open(ctx context.Context, rawURL string) (Backend, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	scheme, _, found := strings.Cut(rawURL, ":")
	if !found || scheme == "" || strings.ContainsAny(scheme, "/?#@ ") {
		return nil, fmt.Errorf("%w: the store's URL has no scheme; %s", ErrInvalid, m.expectedSchemes())
	}
	scheme = strings.ToLower(scheme)
	m.mu.RLock()
	open, known := m.openers[scheme]
	m.mu.RUnlock()
	if !known {
		return nil, fmt.Errorf("%w: unknown scheme %q; %s", ErrInvalid, scheme, m.expectedSchemes())
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		// The error of url.Parse contains the URL, and thus a password.
		return nil, fmt.Errorf("%w: malformed %s URL", ErrInvalid, scheme)
	}
	if strings.Contains(rawURL, "#") {
		return nil, fmt.Errorf("%w: a store's URL has no fragment (write %%23 for a # in it)", ErrInvalid)
	}
	return open(ctx, u)
}

// expectedSchemes returns the end of an error message about a scheme.
func (m *Mux) expectedSchemes() string {
	schemes := m.Schemes()
	if len(schemes) == 0 {
		return "the program imports no adapter"
	}
	return "expected one of " + strings.Join(schemes, ":, ") + ": (the imported adapters)"
}
