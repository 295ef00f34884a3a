// Package cli opens stores, prints results and maps errors to exit codes for the commands of ashlar.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/migrate"
	"github.com/ashlar-dev/storage/service/client"
)

// App is one run of the command: its input and output, and the flags that all commands share.
type App struct {
	In       io.Reader
	Out, Err io.Writer
	Getenv   func(string) string

	Store  string
	Server client.Options
	// TokenFile is the file of the token; Server.Token takes precedence.
	TokenFile string
	Timeout   time.Duration
}

// Context returns the context of a command: the context of the run, bounded by --timeout.
func (a *App) Context(cmd *cobra.Command) (context.Context, context.CancelFunc, error) {
	switch {
	case a.Timeout < 0:
		return nil, nil, Usagef("--timeout must be more than 0")
	case a.Timeout == 0:
		ctx, cancel := context.WithCancel(cmd.Context())
		return ctx, cancel, nil
	}
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), a.Timeout, Failedf("timed out after %v", a.Timeout))
	return ctx, cancel, nil
}

// Policy selects the behaviour for a store that does not exist.
type Policy int

// The policies. A mistyped URL must not become an empty store, so only commands that write new resources create one.
const (
	Existing Policy = iota // a missing store is an error
	Create                 // a missing store is created
)

// With opens the store, or connects to the server, calls do, and closes the backend.
func (a *App) With(ctx context.Context, policy Policy, do func(storage.Backend) error) error {
	backend, err := a.Open(ctx, policy)
	if err != nil {
		return err
	}
	err = Cause(ctx, do(backend))
	if closeErr := backend.Close(); closeErr != nil {
		err = errors.Join(err, fmt.Errorf("close the store: %w", closeErr))
	}
	return err
}

// Open opens the store, or connects to the server.
func (a *App) Open(ctx context.Context, policy Policy) (storage.Backend, error) {
	if a.Server.Address != "" {
		return a.Dial()
	}
	storeURL := a.StoreURL
	if policy == Create {
		storeURL = a.NewStoreURL
	}
	rawURL, err := storeURL()
	if err != nil {
		return nil, err
	}
	backend, err := a.OpenURL(ctx, rawURL, policy)
	if err != nil {
		return nil, Cause(ctx, fmt.Errorf("open the store: %w", err))
	}
	return backend, nil
}

// OpenURL opens the store at a URL. A newly created store is reported on the standard error output. A URL with a create parameter of its own
// is opened unchanged.
func (a *App) OpenURL(ctx context.Context, rawURL string, policy Policy) (storage.Backend, error) {
	u, err := url.Parse(rawURL)
	var query url.Values
	if err == nil {
		query, err = url.ParseQuery(u.RawQuery) // u.Query would drop malformed parameters
	}
	if err != nil || query.Has("create") {
		return storage.Open(ctx, rawURL) // it describes a malformed URL without its credentials
	}
	existing := *u
	query.Set("create", "off")
	existing.RawQuery = query.Encode()
	backend, err := storage.Open(ctx, existing.String())
	switch {
	case !errors.Is(err, storage.ErrNoStore):
		return backend, err
	case policy == Existing:
		return nil, Failedf("%w (ashlar apply, import and serve create a store)", err)
	}
	if backend, err = storage.Open(ctx, rawURL); err == nil {
		fmt.Fprintf(a.Err, "created the store %s\n", Printable(migrate.Name(rawURL)))
	}
	return backend, err
}

// OnStore opens the store, or connects to the server, calls do, and closes the backend.
func (a *App) OnStore(cmd *cobra.Command, policy Policy, do func(context.Context, storage.Backend) error) error {
	ctx, cancel, err := a.Context(cmd)
	if err != nil {
		return err
	}
	defer cancel()
	return a.With(ctx, policy, func(b storage.Backend) error { return do(ctx, b) })
}

// Dial returns the server as a backend.
func (a *App) Dial() (*client.Backend, error) {
	o := a.Server
	if o.Token == "" && a.TokenFile != "" {
		text, err := os.ReadFile(a.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("read the token: %w", err)
		}
		if o.Token = strings.TrimSpace(string(text)); o.Token == "" {
			return nil, fmt.Errorf("read the token: %s is empty", a.TokenFile)
		}
	}
	if o.Token == "" {
		o.Token = a.Getenv("ASHLAR_TOKEN")
	}
	return client.Dial(o)
}

// ExactArgs requires the positional arguments that usage lists.
func ExactArgs(usage ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		if len(given) == len(usage) {
			return nil
		}
		expected := "no arguments"
		if len(usage) > 0 {
			expected = strings.Join(usage, " and ")
		}
		return Usagef("%s takes %s, found %d arguments, see %s --help", cmd.Name(), expected, len(given), cmd.CommandPath())
	}
}

// NewStoreURL returns the URL of a store that is created if it does not exist. It creates the directory of the default store.
func (a *App) NewStoreURL() (string, error) {
	rawURL, err := a.StoreURL()
	if err != nil || a.Store != "" || a.Getenv("ASHLAR_STORE") != "" {
		return rawURL, err
	}
	file, err := a.DefaultFile()
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o700)
	}
	if err != nil {
		return "", fmt.Errorf("create the directory of the default store: %w (name another store with --store)", err)
	}
	return rawURL, nil
}

// StoreURL returns the URL of the store.
func (a *App) StoreURL() (string, error) {
	if a.Store != "" {
		return a.Store, nil
	}
	if u := a.Getenv("ASHLAR_STORE"); u != "" {
		return u, nil
	}
	file, err := a.DefaultFile()
	if err != nil {
		return "", err
	}
	return (&url.URL{Scheme: "sqlite", Path: file}).String(), nil
}

// DefaultFile returns the path of the default store.
func (a *App) DefaultFile() (string, error) {
	// The XDG specification says that relative paths are ignored.
	folder := a.Getenv("XDG_DATA_HOME")
	if !filepath.IsAbs(folder) {
		home := a.Getenv("HOME")
		if !filepath.IsAbs(home) {
			return "", Usagef("no home directory for the default store: name a store with --store or ASHLAR_STORE")
		}
		folder = filepath.Join(home, ".local", "share")
	}
	return filepath.Join(folder, "ashlar", "store.db"), nil
}
