package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"github.com/ashlar-dev/storage"
	_ "github.com/ashlar-dev/storage/dynamodb" // dynamodb:
	_ "github.com/ashlar-dev/storage/etcd"     // etcd:, etcds:
	_ "github.com/ashlar-dev/storage/inmem"    // mem:
	_ "github.com/ashlar-dev/storage/postgres" // postgres:, postgresql:
	_ "github.com/ashlar-dev/storage/sqlite"   // sqlite:
)

// with opens the store, or connects to the server, calls do, and closes it.
func (a *app) with(ctx context.Context, do func(storage.Backend) error) error {
	backend, err := a.open(ctx)
	if err != nil {
		return err
	}
	err = cause(ctx, do(backend))
	if closeErr := backend.Close(); closeErr != nil {
		err = errors.Join(err, fmt.Errorf("close the store: %w", closeErr))
	}
	return err
}

// open opens the store, or connects to the server.
func (a *app) open(ctx context.Context) (storage.Backend, error) {
	if a.server.Address != "" {
		return a.dial()
	}
	rawURL, err := a.storeURL()
	if err != nil {
		return nil, err
	}
	backend, err := storage.Open(ctx, rawURL)
	if err != nil {
		return nil, cause(ctx, fmt.Errorf("open the store: %w", err))
	}
	return backend, nil
}

// storeURL returns the URL of the store. It creates the folder of the default one.
func (a *app) storeURL() (string, error) {
	if a.store != "" {
		return a.store, nil
	}
	if u := a.getenv("ASHLAR_STORE"); u != "" {
		return u, nil
	}
	file, err := a.defaultFile()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return "", fmt.Errorf("make the folder of the default store: %w (name another store with --store)", err)
	}
	return (&url.URL{Scheme: "sqlite", Path: file}).String(), nil
}

// defaultFile returns the path of the default store.
func (a *app) defaultFile() (string, error) {
	// The XDG specification says that a relative path is to be ignored.
	folder := a.getenv("XDG_DATA_HOME")
	if !filepath.IsAbs(folder) {
		home := a.getenv("HOME")
		if !filepath.IsAbs(home) {
			return "", usagef("there is no home folder for the default store: name a store with --store or ASHLAR_STORE")
		}
		folder = filepath.Join(home, ".local", "share")
	}
	return filepath.Join(folder, "ashlar", "store.db"), nil
}
