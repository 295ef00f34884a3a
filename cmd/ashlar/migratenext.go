package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/migrate"
)

// A migration that has ended early says what state the source is in, and which commands lead on. They show stores by the names
// that migrate.Name gives them, because a URL may hold a password.

// command is a command line about both stores.
func (f *fromTo) command(sub string, flags ...string) string {
	words := append([]string{"ashlar", "migrate"}, strings.Fields(sub)...)
	words = append(words, "--from", quoted(migrate.Name(f.from)), "--to", quoted(migrate.Name(f.to)))
	return strings.Join(append(words, flags...), " ")
}

// unfence is the command line that opens a store.
func unfence(url string) string { return "ashlar migrate unfence --store " + quoted(migrate.Name(url)) }

// quoted quotes a word for a shell, where it needs to be.
func quoted(word string) string {
	plain := func(r rune) bool {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-_./:=@%+,", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(printable(word), "'", `'\''`) + "'"
}

// same is the command line that was given.
func (f *moving) same() string {
	var flags []string
	for _, flag := range []struct {
		given bool
		name  string
	}{{f.live, "--live"}, {f.merge, "--merge"}, {f.overwrite, "--overwrite"}, {f.mirror, "--mirror"}} {
		if flag.given {
			flags = append(flags, flag.name)
		}
	}
	if f.lag > 0 {
		flags = append(flags, "--cutover-when-lag-below", f.lag.String())
	}
	return f.command("", flags...)
}

// wayOn says how a migration that has ended early can be gone on with.
func (f *moving) wayOn(r *migrate.Result) string {
	source := "the source is open for writing"
	abort := "give it up"
	if r.Closed {
		source, abort = "the source is closed for writing until then", "open the source again"
	}
	switch r.Next {
	case migrate.Again:
		return fmt.Sprintf("nothing is lost: the same command goes on from here (phase %q), and %s. To go on: %s. To %s: %s", r.Phase, source,
			f.same(), abort, f.command("abort"))
	case migrate.GiveUp:
		return fmt.Sprintf("nothing is lost, but the same command would fail again. To %s: %s", abort, f.command("abort"))
	case migrate.Leave:
		return fmt.Sprintf("another process goes on with it, or has given it up. To see: ashlar migrate status --store %s", quoted(migrate.Name(f.to)))
	}
	return ""
}

// ended is the error of a migration that has ended early, with the way on.
func (f *moving) ended(ctx context.Context, show *migration, r *migrate.Result, err error) error {
	text := f.wayOn(r)
	switch {
	case text == "":
		return err
	case ctx.Err() != nil:
		show.note(fmt.Sprintf("stopped in phase %q; %s", r.Phase, text))
		return err
	}
	return fmt.Errorf("%w; %s", err, text)
}

// notAborted is the error of giving a migration up, with the way on: once begun, it can be done again.
func (f *fromTo) notAborted(err error) error {
	if errors.Is(err, storage.ErrInvalid) || errors.Is(err, migrate.ErrBusy) || errors.Is(err, migrate.ErrUnsupported) {
		return fmt.Errorf("abort: %w", err)
	}
	return fmt.Errorf("abort: %w; to do it again: %s; to open the source whatever the target says: %s", err, f.command("abort"), unfence(f.from))
}
