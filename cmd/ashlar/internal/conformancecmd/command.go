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

// conformanceRun is what the user wants to know of a database.
type conformanceRun struct {
	faults       bool
	during       time.Duration
	crashCommand string
	seed         uint64
	pattern      string
	report       string
	parallel     int

	run     *regexp.Regexp // nil: everything
	noCases bool           // the part under faults is all
}

// faultsCase is what --run calls the part under faults.
const faultsCase = "Faults"

func Command(a *cli.App) *cobra.Command {
	var q conformanceRun
	cmd := &cobra.Command{
		Use:   "conformance",
		Short: "Ask whether a database, with its settings, keeps the promises",
		Long: `Ask whether a database, with its settings, keeps the promises that every store is to keep: compare-and-swap, fresh reads, watches
that miss and repeat nothing, transactions, and so on. Each is shown with ✓, or with what was wrong. The exit code is 1 if a
promise was broken.

The store itself is not touched. The command works in stores of its own beside it, in the same database and with the other
parameters of the URL: schemas (Postgres), prefixes below the store's (etcd), a table (DynamoDB), files in a folder (SQLite).
Their names begin with ashlar_conformance_, and they are deleted at the end, also after a failure and after Ctrl-C. The user
of the URL has to be allowed to create them.

--faults goes on under faults: many clients work at once for as long as --for says, while their connections are cut, delayed and
throttled and answers get lost, and what all of them saw is checked as one history. That happens between this command and the
database: nobody else notices. Where connections are encrypted no answers get lost, because requests cannot be told apart.
Memory and SQLite have no connections; clients get into each other's way all the same.

What happens to the server itself is up to you. --crash-command is a command for the shell that crashes it, or has it fail over, and
brings it back; it is run at random moments, and the database has to answer within two minutes after it. EVERYBODY WHO USES THE
SERVER SUFFERS. Only so can the command see that a database acknowledges what it then forgets.`,
		Example: `  ashlar conformance --store postgres://db.example/app
  ashlar conformance --store postgres://db.example/app --faults --for 2m --report report.html
  ashlar conformance --store postgres://localhost/app --faults --crash-command 'docker kill pg; docker wait pg; docker start pg'
  ashlar conformance --store etcd://10.0.0.1,10.0.0.2,10.0.0.3/app --faults --crash-command 'ssh 10.0.0.2 sudo systemctl kill -s KILL etcd'
  ashlar conformance --store sqlite:///mnt/nfs/store.db --run 'Write/|Order/'
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
	flags.BoolVar(&q.faults, "faults", false, "go on under faults")
	flags.DurationVar(&q.during, "for", time.Minute, "how long to go on under faults")
	flags.StringVar(&q.crashCommand, "crash-command", "", "a command for the shell that crashes the server and brings it back, for --faults")
	flags.Uint64Var(&q.seed, "seed", 0, "have --faults choose as in the run that showed this seed (default: a new one)")
	flags.StringVar(&q.pattern, "run", "", "ask only what matches this regular expression: cases are topic/case, the part under faults is Faults")
	flags.StringVar(&q.report, "report", "", "also write a report to this file, as HTML")
	flags.IntVar(&q.parallel, "parallel", 4, "how many cases run at once")
	return cmd
}

// check refuses flags that contradict each other.
func (q *conformanceRun) check(cmd *cobra.Command) (err error) {
	if !q.faults {
		for _, name := range []string{"for", "crash-command", "seed"} {
			if cmd.Flags().Changed(name) {
				return cli.Usagef("--%s goes with --faults", name)
			}
		}
	}
	if q.during <= 0 {
		return cli.Usagef("--for is to be more than nothing")
	}
	if q.parallel <= 0 {
		return cli.Usagef("--parallel is to be 1 or more, found %d", q.parallel)
	}
	if q.pattern == "" {
		return nil
	}
	if q.run, err = regexp.Compile(q.pattern); err != nil {
		return cli.Usagef("--run: %w", err)
	}
	if q.faults && !q.run.MatchString(faultsCase) {
		return cli.Usagef("--faults goes on with what is called %s, which --run %s leaves out", faultsCase, strconv.Quote(q.pattern))
	}
	q.noCases = !slices.ContainsFunc(conformance.Guarantees(), func(g conformance.Guarantee) bool {
		return slices.ContainsFunc(g.Cases, q.run.MatchString)
	})
	if q.noCases && !q.faults {
		return cli.Usagef("--run %s matches no case", strconv.Quote(q.pattern))
	}
	return nil
}

// ask asks, shows the answers, and deletes what it was asked in.
func checkStore(ctx context.Context, a *cli.App, q *conformanceRun) (err error) {
	rawURL, err := a.StoreURL()
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
		return fmt.Errorf("open a store of its own: %w", err)
	}
	show := newProgress(a.Err)
	defer func() {
		if problem := cleanup(ctx, space); problem != nil {
			err = errors.Join(err, cleanupError(ctx, a, space, problem))
		}
	}()
	answers := &results{store: redactURL(rawURL), location: space.Location, started: time.Now()}
	asked := answers.collect(ctx, q, space, show)
	show.clear()
	answers.took = time.Since(answers.started)
	if len(answers.cases) == 0 && answers.faults == nil {
		return asked // nothing was answered
	}
	if err := answers.print(a.Out); err != nil {
		return err
	}
	if q.report != "" {
		if err := answers.writeReport(q.report); err != nil {
			return err
		}
	}
	if asked != nil {
		return asked
	}
	return answers.verdict()
}

// openOnce makes a store.
func openOnce(ctx context.Context, storeURL string) error {
	b, err := storage.Open(ctx, storeURL)
	if err != nil {
		return err
	}
	return b.Close()
}

// cleanupError is the error about what is cleanupError in the database. Of a command that was interrupted no error is shown, so it gets a line.
func cleanupError(ctx context.Context, a *cli.App, space *scratchstore.Space, problem error) error {
	err := cli.Failedf("%s could not be deleted: %w", space.Location, problem)
	if ctx.Err() != nil {
		_, _ = fmt.Fprintln(a.Err, cli.OneLine(err))
	}
	return err
}

// cleanupTimeout is how long a database may take to answer so that what was made in it can be deleted.
const cleanupTimeout = time.Minute

// cleanup deletes the space whatever became of ctx. A database that was disturbed may need a moment until it answers.
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

// collect collects the answers. An error says that not everything could be asked.
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
		n.faults = report // one that was given up has not been checked
	}
	return err
}

// harnessFor is what the suite is to know of a kind of database: what it does not promise (see docs/semantics.md), and the limit that
// the URL sets.
func harnessFor(storeURL string) (h conformance.Harness) {
	u, err := url.Parse(storeURL)
	if err != nil {
		return h // whoever opens it will say so
	}
	h.MaxSize, _ = strconv.Atoi(u.Query().Get("max-size")) // one that is malformed is found when it is opened
	switch u.Scheme {
	case "etcd":
		h.NoCompact = "a compaction concerns all of the cluster, which others may use"
	case "dynamodb":
		h.Slow = true
		h.NoHistorian = "DynamoDB numbers nothing across keys, and keeps no versions"
		h.ListIsNoSnapshot = "DynamoDB reads no two partitions, and no two pages, at the same moment"
		h.NoOrderAcrossKeys = "each shard of a stream has an order of its own"
		h.NoBookmarker = "shards of a stream do not say how far behind the table they are"
		h.NoCommitBounds = "the records of one transaction come by several shards"
	}
	return h
}

// runFaults asks under faults.
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
