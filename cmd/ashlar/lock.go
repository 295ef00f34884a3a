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

// The environment of a command that runs under a lock.
const (
	lockName  = "ASHLAR_LOCK"
	lockEpoch = "ASHLAR_LOCK_EPOCH"
)

const (
	defaultLockTTL = 15 * time.Second
	// resignTimeout is how long the store is given to free the lock. If it does not, the lock is free when its time to live has passed.
	resignTimeout = 10 * time.Second
	// holderTimeout bounds the read of the lock's holder after the time to wait for the lock has passed.
	holderTimeout = 10 * time.Second
)

func lockCommand(a *cli.App) *cobra.Command {
	l := locker{app: a}
	cmd := &cobra.Command{
		Use:   "lock NAME [-- COMMAND [ARGUMENT...]]",
		Short: "Run a command while holding a lock, or show who holds it",
		Long: `Wait for a lock, run a command while holding it, and free it. The exit code is that of the command; 128 and the number of the signal
if a signal ended it. Without a command: show who holds the lock, and in which epoch.

The lock is one for all that open the store and name the lock, the partition and the namespace alike. Who holds it renews it all the
time. If that is not possible for two thirds of the time to live (--ttl), the command is told to end (SIGTERM), and killed before the
time to live has passed. Only then can another process take over. If this program is killed, the command is killed with it (Linux), and
the lock is free when the time to live has passed. If this program is told to end (Ctrl-C, SIGTERM, SIGHUP), the command is told to
end; the second time (Ctrl-C, SIGTERM), it is killed. At a terminal only the command itself is told or killed, not what it has started:
that can run on without the lock. Ctrl-Z stops this program with the command, and on Linux only then: a command that ignores it keeps
the lock. A command that is woken when the lock was lost meanwhile is killed.

A machine that stands still with this program and its command, and wakes later, can find the lock taken over, while the command does not
know yet. Every tenure has an epoch, a number that grows, in $ASHLAR_LOCK_EPOCH: have whatever the command writes to refuse numbers that
are smaller than the largest it has seen. Programs in Go fence their writes to the store itself by package lease.`,
		Example: `  ashlar lock nightly-backup -- ./backup.sh
  ashlar lock deploy -n shop --wait 0s -- make deploy
  ashlar lock nightly-backup`,
		Args: func(cmd *cobra.Command, given []string) error {
			switch dash := cmd.ArgsLenAtDash(); {
			case len(given) == 0 || dash == 0:
				return cli.Usagef("lock takes the NAME of a lock, see ashlar lock --help")
			case len(given) > 1 && dash != 1:
				return cli.Usagef("lock takes one NAME, then -- and the command, see ashlar lock --help")
			case len(given) == 1 && dash == 1:
				return cli.Usagef("there is no command behind --")
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if l.hasWait = cmd.Flags().Changed("wait"); l.hasWait && l.wait < 0 {
				return cli.Usagef("--wait is to be 0 or more")
			}
			if l.ttl < time.Second {
				return cli.Usagef("--ttl is to be a second or more")
			}
			ctx, cancel, err := a.Context(cmd)
			if err != nil {
				return err
			}
			defer cancel()
			return a.With(ctx, func(b storage.Backend) error { return l.run(ctx, b, args[0], args[1:]) })
		},
	}
	l.flags(cmd, cli.DefaultTenancy)
	cmd.Flags().DurationVar(&l.ttl, "ttl", defaultLockTTL, "how long the lock stays taken when its holder gives no sign of life")
	cmd.Flags().DurationVar(&l.wait, "wait", 0, "give up if the lock cannot be had in this time, with exit code 4 if it is held (default: wait for ever)")
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
	host = strings.ToValidUTF8(host, "?") // the system takes any bytes
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
	if freed := tenure.Resign(free); freed != nil {
		// The command has had the lock for as long as it ran: how it ended is the answer.
		fmt.Fprintf(l.app.Err, "ashlar: the lock is free only when %v have passed: %s\n", l.ttl, cli.OneLine(freed))
	}
	return err
}

// show prints who holds the lock.
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
	held := &cli.CodedError{Code: cli.ExitConflict, Err: fmt.Errorf("lock %q is held by somebody else", name)}
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
	if err != nil && ctx.Err() == nil && waiting.Err() != nil && (errors.Is(err, lease.ErrHeld) || isHeld(ctx, elector)) {
		err = held
	}
	return tenure, err
}

// isHeld asks the store whether the lock is held. The time to wait may have passed before the store answered at all, and the exit code
// must not depend on how busy the machine is.
func isHeld(ctx context.Context, elector *lease.Elector) bool {
	ctx, cancel := context.WithTimeout(ctx, holderTimeout)
	defer cancel()
	holder, _, err := elector.Holder(ctx)
	return err == nil && holder != ""
}

// runCommand runs a command in a tenure.
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

// stillHeld reports whether nobody has taken the lock over, as far as the store can prove it.
func (l *locker) stillHeld(ctx context.Context, b storage.Backend, tenure *lease.Tenure) bool {
	ctx, cancel := context.WithTimeout(ctx, l.ttl/6)
	defer cancel()
	tx, ok := storage.As[storage.Transactor](b)
	if !ok {
		return false // a backend without it has no locks
	}
	_, err := tx.Commit(ctx, []storage.Op{tenure.Fence()})
	return err == nil && tenure.Err() == nil
}

// secondSignal returns a channel that is closed when this program has been told to end twice: if it died of that, what the command has started
// would run on without the lock.
func secondSignal() (<-chan struct{}, func()) {
	signals, twice, over := make(chan os.Signal, 2), make(chan struct{}), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for range 2 {
			select {
			case <-signals:
			case <-over:
				return
			}
		}
		close(twice)
	}()
	return twice, func() {
		signal.Stop(signals)
		close(over)
	}
}

// hangupContext returns a context that also ends when the terminal does (SIGHUP), unless that is ignored, as under nohup.
func hangupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if signal.Ignored(syscall.SIGHUP) {
		return context.WithCancel(ctx)
	}
	return signal.NotifyContext(ctx, syscall.SIGHUP)
}
