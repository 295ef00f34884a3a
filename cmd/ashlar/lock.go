package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/child"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/lease"
)

// Environment variables of a command that runs under a lock.
const (
	lockName  = "ASHLAR_LOCK"
	lockEpoch = "ASHLAR_LOCK_EPOCH"
)

const (
	defaultLockTTL = 15 * time.Second
	// resignTimeout bounds the attempt to free the lock. If it fails, the lock becomes free when its time to live has passed.
	resignTimeout = 10 * time.Second
	// holderTimeout bounds the read of the lock's holder after --wait has expired.
	holderTimeout = 10 * time.Second
)

func lockCommand(a *cli.App) *cobra.Command {
	l := locker{app: a}
	cmd := &cobra.Command{
		Use:   "lock NAME [-- COMMAND [ARGUMENT...]]",
		Short: "Run a command while holding a lock, or show its holder",
		Long: `Wait for a lock, run a command while holding it, and release it. The exit code is that of the command, or 128 plus the signal number if
a signal ended it. Without a command: show the holder of the lock, and its epoch.

All clients that use the same store, lock name, partition and namespace share one lock. The holder renews it continuously. If renewal
fails for two thirds of the time to live (--ttl), the command receives SIGTERM, and it is killed before the time to live has passed. Only
then can another process take over. If this program is killed, the command is killed with it (Linux), and the lock becomes free when the
time to live has passed. If this program receives Ctrl-C, SIGTERM or SIGHUP, the command receives SIGTERM; on a second Ctrl-C or SIGTERM
it is killed. At a terminal, signals reach only the command itself, not the processes it has started: these can continue without the
lock. Ctrl-Z stops this program together with the command. On Linux it has no effect if the command ignores it: the command keeps the
lock. A command that resumes after the lock was lost is killed.

A machine that suspends this program and its command can resume when another process already holds the lock, and the command does not know
yet. Every tenure has an epoch, an increasing number, in $ASHLAR_LOCK_EPOCH: make the systems that the command writes to reject epochs
smaller than the largest they have seen. Go programs fence their writes to the store itself with package lease.`,
		Example: `  ashlar lock nightly-backup -- ./backup.sh
  ashlar lock deploy -n shop --wait 0s -- make deploy
  ashlar lock nightly-backup`,
		Args: func(cmd *cobra.Command, given []string) error {
			switch dash := cmd.ArgsLenAtDash(); {
			case len(given) == 0 || dash == 0:
				return cli.Usagef("lock needs the NAME of a lock, see ashlar lock --help")
			case len(given) > 1 && dash != 1:
				return cli.Usagef("lock takes one NAME, then -- and the command, see ashlar lock --help")
			case len(given) == 1 && dash == 1:
				return cli.Usagef("no command after --")
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if l.hasWait = cmd.Flags().Changed("wait"); l.hasWait && l.wait < 0 {
				return cli.Usagef("--wait must be 0 or more")
			}
			if l.ttl < time.Second {
				return cli.Usagef("--ttl must be a second or more")
			}
			return a.OnStore(cmd, cli.Create, func(ctx context.Context, b storage.Backend) error { return l.run(ctx, b, args[0], args[1:]) })
		},
	}
	l.flags(cmd, cli.DefaultTenancy)
	cmd.Flags().DurationVar(&l.ttl, "ttl", defaultLockTTL, "how long the lock of an unresponsive holder stays taken")
	cmd.Flags().DurationVar(&l.wait, "wait", 0, "maximum time to wait for the lock, then exit, with code 4 if it is held (default: wait forever)")
	return cmd
}

// locker is one run of the command.
type locker struct {
	tenancy
	app       *cli.App
	ttl, wait time.Duration
	hasWait   bool
}

func (l *locker) run(ctx context.Context, b storage.Backend, name string, command []string) error {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	host = strings.ToValidUTF8(host, "?") // a host name may contain any bytes
	elector, err := lease.NewElector(b, l.proto(), name, &lease.Options{TTL: l.ttl, Holder: fmt.Sprintf("%s/%d", host, os.Getpid())})
	if err != nil {
		return err
	}
	if len(command) == 0 {
		return l.show(ctx, elector)
	}
	tenure, err := l.campaign(ctx, elector, name)
	if err != nil {
		return err
	}
	err = l.runCommand(ctx, b, tenure, name, command)
	free, cancel := context.WithTimeout(context.WithoutCancel(ctx), resignTimeout)
	defer cancel()
	if err := tenure.Resign(free); err != nil {
		// The command held the lock while it ran, so its outcome is the result.
		fmt.Fprintf(l.app.Err, "ashlar: the lock becomes free only after %v: %s\n", l.ttl, cli.OneLine(err))
	}
	return err
}

// show prints the holder of the lock.
func (l *locker) show(ctx context.Context, elector *lease.Elector) error {
	holder, epoch, err := elector.Holder(ctx)
	if err != nil {
		return err
	}
	if holder == "" {
		_, err = fmt.Fprintf(l.app.Out, "free, epoch %d\n", epoch)
	} else {
		_, err = fmt.Fprintf(l.app.Out, "held by %s, epoch %d\n", holder, epoch)
	}
	return err
}

// campaign waits for the lock.
func (l *locker) campaign(ctx context.Context, elector *lease.Elector, name string) (*lease.Tenure, error) {
	held := &cli.CodedError{Code: cli.ExitConflict, Err: fmt.Errorf("lock %q is held by another process", name)}
	if l.hasWait && l.wait == 0 {
		tenure, err := elector.Try(ctx)
		if errors.Is(err, lease.ErrHeld) {
			err = held
		}
		return tenure, err
	}
	waiting := ctx
	if l.hasWait {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, l.wait)
		defer cancel()
	}
	tenure, err := elector.Campaign(waiting)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil && (errors.Is(err, lease.ErrHeld) || hasHolder(ctx, elector)) {
		err = held
	}
	return tenure, err
}

// hasHolder asks the store whether the lock is held. --wait may expire before the store has answered at all, and the exit code must not depend
// on the load of the machine.
func hasHolder(ctx context.Context, elector *lease.Elector) bool {
	ctx, cancel := context.WithTimeout(ctx, holderTimeout)
	defer cancel()
	holder, _, err := elector.Holder(ctx)
	return err == nil && holder != ""
}

// runCommand runs a command during a tenure.
func (l *locker) runCommand(ctx context.Context, b storage.Backend, tenure *lease.Tenure, name string, command []string) error {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = l.app.In, l.app.Out, l.app.Err
	cmd.Env = append(os.Environ(), lockName+"="+name, fmt.Sprintf("%s=%d", lockEpoch, tenure.Epoch()))
	end, stop := hangupContext(ctx)
	defer stop()
	kill, forget := secondSignal()
	defer forget()
	err := child.Run(cmd, child.Condition{End: end.Done(), Kill: kill, Revoked: tenure.Done(), Grace: l.ttl / 6, Holds: func() bool {
		return l.stillHeld(context.WithoutCancel(ctx), b, tenure)
	}})
	switch {
	case tenure.Err() != nil:
		return &cli.CodedError{Code: cli.ExitFailed, Err: fmt.Errorf("%s: %w", command[0], tenure.Err()), AfterInterrupt: true}
	case err == nil:
		return nil
	}
	code := child.Code(err)
	if code < 0 {
		return cli.Failedf("run %s: %w", command[0], err)
	}
	return &cli.CodedError{Code: code, Err: fmt.Errorf("%s: %w", command[0], err), AfterInterrupt: true}
}

// stillHeld reports whether the store can prove that no other process has taken over the lock.
func (l *locker) stillHeld(ctx context.Context, b storage.Backend, tenure *lease.Tenure) bool {
	ctx, cancel := context.WithTimeout(ctx, l.ttl/6)
	defer cancel()
	tx, ok := storage.As[storage.Transactor](b)
	if !ok {
		return false // such a backend has no locks
	}
	_, err := tx.Commit(ctx, []storage.Op{tenure.Fence()})
	return err == nil && tenure.Err() == nil
}

// secondSignal returns a channel that is closed when this program has received two signals to end. If the program died of the second one,
// the processes of the command would continue without the lock.
func secondSignal() (<-chan struct{}, func()) {
	signals, twice, stopped := make(chan os.Signal, 2), make(chan struct{}), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for range 2 {
			select {
			case <-signals:
			case <-stopped:
				return
			}
		}
		close(twice)
	}()
	return twice, func() {
		signal.Stop(signals)
		close(stopped)
	}
}

// hangupContext returns a context that also ends with the terminal (SIGHUP), unless that signal is ignored, as under nohup.
func hangupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if signal.Ignored(syscall.SIGHUP) {
		return context.WithCancel(ctx)
	}
	return signal.NotifyContext(ctx, syscall.SIGHUP)
}
