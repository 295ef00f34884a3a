package serve

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
)

// Types and rules that are removed at once take effect at once: files that were refused because of others are read again after those.
func TestReloadRefusedFilesAgain(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	signals := make(chan os.Signal)
	r := reloader{logger: slog.New(slog.DiscardHandler), signals: signals}
	served, used := 1, 1 // the types that are served, and those that have rules
	wantedTypes, wantedRules := 1, 1
	add := func(name string, load func() error) {
		if err := r.add(name, load); err != nil {
			t.Fatal(err)
		}
	}
	add("types", func() error {
		if wantedTypes < used {
			return errors.New("a type that is not served has a rule")
		}
		served = wantedTypes
		return nil
	})
	add("tokens", func() error {
		if wantedRules > served {
			return errors.New("a rule is for a type that is not served")
		}
		used = wantedRules
		return nil
	})
	ended := make(chan struct{})
	go func() { defer close(ended); _ = r.run(ctx) }()
	wantedTypes, wantedRules = 0, 0
	signals <- nil
	cancel()
	<-ended
	if served != 0 || used != 0 {
		t.Errorf("after the reload %d types are served and %d have rules, expected none", served, used)
	}
}
