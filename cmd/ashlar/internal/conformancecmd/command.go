// Package conformancecmd is the command "ashlar conformance".
package conformancecmd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/conformance"
	"github.com/ashlar-dev/storage/conformance/faults"
	"github.com/ashlar-dev/storage/internal/scratchstore"
)

// conformanceRun holds the flags of the conformance command.
type conformanceRun struct {
	faults       bool
	during       time.Duration
	crashCommand string
	seed         uint64
	pattern      string
	report       string
	parallel     int

	run     *regexp.Regexp // nil for all
	noCases bool           // run only the part under faults
}

// faultsCase is the name of the part under faults for --run.
const faultsCase = "Faults"

// Command returns the conformance command.
func Command(a *cli.App) *cobra.Command {
	var q conformanceRun
	cmd := &cobra.Command{
		Use:   "conformance",
		Short: "Test whether a database, with its settings, keeps the guarantees",
		Long: `Test whether a database, with its settings, keeps the guarantees of every store: compare-and-swap, strong reads, watches that miss and
repeat nothing, transactions, and so on. A line for each guarantee begins with ✓ (kept), ✗ (broken, with the violations) or – (not tested).
The exit code is 1 if a guarantee was broken.

The command does not touch the store itself. It creates scratch stores beside it, in the same database and with the other parameters
of the URL: schemas (Postgres), prefixes below the store's (etcd), a table (DynamoDB), files in a directory (SQLite). Their names begin
with ashlar_conformance_. They are deleted at the end, also after a failure and after Ctrl-C. The user of the URL must be allowed to
create them.

--faults adds a run under faults: for the time of --for, many clients work at once while their connections are cut, delayed and throttled,
answers are lost, and some of their processes are killed and frozen. All calls and results are checked as one history. The faults affect
only the clients of this command. On encrypted connections no answers are lost, because a proxy cannot recognize requests. SQLite has no
connections, and memory also no processes.

Faults of the server itself are up to you. --crash-command is a shell command that crashes the server, or makes it fail over, and brings
it back. It runs at random moments, and the database must answer within two minutes after it. THIS AFFECTS EVERY USER OF THE SERVER. Only
a crash can show that a database acknowledges writes and then loses them.`,
		Example: `  ashlar conformance --store postgres://db.example/app
  ashlar conformance --store postgres://db.example/app --faults --for 2m --report report.html
  ashlar conformance --store postgres://localhost/app --faults --crash-command 'docker kill pg; docker wait pg; docker start pg'
  ashlar conformance --store etcd://10.0.0.1,10.0.0.2,10.0.0.3/app --faults --crash-command 'ssh 10.0.0.2 sudo systemctl kill -s KILL etcd'
  ashlar conformance --store sqlite:///mnt/disk/store.db --run 'Histories/|Load/'
  ashlar conformance --store postgres://db.example/app --faults --run Faults --seed 4711`,
		Args:              cli.ExactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := q.check(cmd); err != nil {
				return err
			}
			ctx, cancel, err := a.Context(cmd)
			if err != nil {
				return err
			}
			defer cancel()
			return cli.Cause(ctx, checkStore(ctx, a, &q))
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&q.faults, "faults", false, "also run under faults")
	flags.DurationVar(&q.during, "for", time.Minute, "how long to run under faults")
	flags.StringVar(&q.crashCommand, "crash-command", "", "shell command that crashes the server and brings it back, for --faults")
	flags.Uint64Var(&q.seed, "seed", 0, "repeat the choices of the --faults run that printed this seed (default: a new seed)")
	flags.StringVar(&q.pattern, "run", "", "run only the cases that match this regular expression: their names are topic/case, and Faults for the part under faults")
	flags.StringVar(&q.report, "report", "", "also write a report to this file, as HTML")
	flags.IntVar(&q.parallel, "parallel", 4, "number of cases that run at once")
	return cmd
}

// check rejects contradictory flags.
func (q *conformanceRun) check(cmd *cobra.Command) (err error) {
	if !q.faults {
		for _, name := range []string{"for", "crash-command", "seed"} {
			if cmd.Flags().Changed(name) {
				return cli.Usagef("--%s goes with --faults", name)
			}
		}
	}
	if q.during <= 0 {
		return cli.Usagef("--for must be more than 0")
	}
	if q.parallel <= 0 {
		return cli.Usagef("--parallel must be 1 or more, found %d", q.parallel)
	}
	if q.pattern == "" {
		return nil
	}
	if q.run, err = regexp.Compile(q.pattern); err != nil {
		return cli.Usagef("--run: %w", err)
	}
	if q.faults && !q.run.MatchString(faultsCase) {
		return cli.Usagef("the part under faults is called %s, but --run %s does not match it", faultsCase, strconv.Quote(q.pattern))
	}
	q.noCases = !slices.ContainsFunc(conformance.Guarantees(), func(g conformance.Guarantee) bool {
		return slices.ContainsFunc(g.Cases, q.run.MatchString)
	})
	if q.noCases && !q.faults {
		return cli.Usagef("--run %s matches no case", strconv.Quote(q.pattern))
	}
	return nil
}

// checkStore runs the suite, prints the results, and deletes the stores it created.
func checkStore(ctx context.Context, a *cli.App, q *conformanceRun) (err error) {
	rawURL, err := a.NewStoreURL()
	if err != nil {
		return err
	}
	space, err := scratchstore.New(rawURL, "conformance")
	if err != nil {
		return err
	}
	if err := openOnce(ctx, space.Store(0).String()); err != nil {
		if problem := space.Drop(context.WithoutCancel(ctx)); problem != nil && !errors.Is(problem, storage.ErrInconsistent) {
			err = errors.Join(err, cleanupError(ctx, a, space, problem))
		}
		return fmt.Errorf("open a scratch store: %w", err)
	}
	progress := newProgress(a.Err)
	defer func() {
		if problem := cleanup(ctx, space); problem != nil {
			err = errors.Join(err, cleanupError(ctx, a, space, problem))
		}
	}()
	r := &results{store: redactURL(rawURL), location: space.Location, startTime: time.Now()}
	runErr := r.collect(ctx, q, space, progress)
	progress.clear()
	r.took = time.Since(r.startTime)
	if len(r.cases) == 0 && r.faults == nil {
		return runErr
	}
	if err := r.print(a.Out); err != nil {
		return err
	}
	if q.report != "" {
		if err := r.writeReport(q.report); err != nil {
			return err
		}
	}
	if runErr != nil {
		return runErr
	}
	return r.verdict()
}

// openOnce creates a store.
func openOnce(ctx context.Context, storeURL string) error {
	b, err := storage.Open(ctx, storeURL)
	if err != nil {
		return err
	}
	return b.Close()
}

// cleanupError returns an error about stores that could not be deleted. The errors of an interrupted command are not shown, so it also
// prints a line then.
func cleanupError(ctx context.Context, a *cli.App, space *scratchstore.Space, problem error) error {
	err := cli.Failedf("%s could not be deleted: %w", space.Location, problem)
	if ctx.Err() != nil {
		_, _ = fmt.Fprintln(a.Err, cli.OneLine(err))
	}
	return err
}

// cleanupTimeout bounds the time until a database answers so that the scratch stores can be deleted.
const cleanupTimeout = time.Minute

// cleanup deletes the scratch stores even if ctx has ended. A database may need a moment to answer after faults.
func cleanup(ctx context.Context, space *scratchstore.Space) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		err := space.Drop(ctx)
		if !errors.Is(err, storage.ErrInconsistent) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

// collect runs the cases and the faults. An error means that the run is incomplete.
func (n *results) collect(ctx context.Context, q *conformanceRun, space *scratchstore.Space, show *progress) error {
	var stores atomic.Int64
	next := func() string { return space.Store(int(stores.Add(1))).String() }
	h := harnessFor(next())
	if !q.noCases {
		h.URL = func(testing.TB) string { return next() }
		report, err := conformance.Check(ctx, h, conformance.Options{Run: q.run, Parallel: q.parallel, Progress: show.showCase})
		if n.cases = report.Results; err != nil {
			return err
		}
	}
	if !q.faults {
		return nil
	}
	report, err := n.runFaults(ctx, q, h, next(), space.Requests, show)
	if err == nil || report != nil && len(report.Violations) > 0 {
		n.faults = report // an interrupted run without violations was not checked
	}
	return err
}

// harnessFor returns the suite's configuration for a kind of database: the promises it does not make (see docs/semantics.md), and
// the size limit that the URL sets.
func harnessFor(storeURL string) (h conformance.Harness) {
	u, err := url.Parse(storeURL)
	if err != nil {
		return h // opening the store reports the error
	}
	h.MaxSize, _ = strconv.Atoi(u.Query().Get("max-size")) // opening the store reports a malformed value
	switch u.Scheme {
	case "etcd":
		h.NoCompact = "a compaction affects the whole cluster, which other programs may use"
	case "dynamodb":
		h.Slow = true
		h.NoHistorian = "DynamoDB has no numbers across keys, and keeps no versions"
		h.ListIsNoSnapshot = "DynamoDB reads different partitions, and different pages, at different moments"
		h.NoOrderAcrossKeys = "each shard of a stream has an order of its own"
		h.NoBookmarker = "a shard of a stream does not report its lag behind the table"
		h.NoCommitBounds = "the records of one transaction arrive through several shards"
	}
	return h
}

// runFaults runs the suite under faults.
func (n *results) runFaults(ctx context.Context, q *conformanceRun, c conformance.Harness, storeURL string, requests []string, show *progress) (*faults.Report, error) {
	w := newFaultProxies(requests)
	defer w.close()
	h, err := w.harness(ctx, storeURL, q.crashCommand)
	if err != nil {
		return nil, err
	}
	h.MaxSize, h.NoBookmarker, h.NoCommitBounds = c.MaxSize, c.NoBookmarker, c.NoCommitBounds
	h.ListIsNoSnapshot, h.NoOrderAcrossKeys, h.NoHistorian = c.ListIsNoSnapshot, c.NoOrderAcrossKeys, c.NoHistorian
	o := faults.Options{For: q.during, Seed: q.seed}
	stop := show.showFaults(&o)
	defer stop()
	return faults.Run(ctx, h, o)
}
