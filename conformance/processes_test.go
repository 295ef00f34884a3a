package conformance

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/conformance/faults"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/sqlite"
)

func TestMain(m *testing.M) {
	storage.Register("selfish", func(ctx context.Context, u *url.URL) (storage.Backend, error) {
		b, err := sqlite.Open(ctx, &url.URL{Scheme: "sqlite", Path: u.Path})
		return &selfish{Backend: b, bug: u.Query().Get("bug")}, err
	})
	if !faults.ServeProcess() {
		os.Exit(m.Run())
	}
}

// emptyFirstPage is no bug: the first page of a listing may be empty.
const emptyFirstPage = "empty-first-page-"

// selfish is a SQLite store whose listings belong to one process.
type selfish struct {
	*sqlite.Backend
	bug    string
	tokens sync.Map // that this process has returned
}

func (b *selfish) ListPage(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string, opts storage.ListOptions) (storage.Page, error) {
	if _, own := b.tokens.Load(opts.Continue); opts.Continue != "" && !own && b.bug == "a token goes with its process" {
		return storage.Page{}, storage.ErrCompacted
	}
	if b.bug == "revisions of other processes are the present" {
		opts.Revision = 0
	}
	if b.bug == emptyFirstPage && opts.Continue == "" {
		past, _ := storage.As[history.Historian](b.Backend)
		_, newest, err := past.Revisions(ctx)
		return storage.Page{Continue: fmt.Sprint(emptyFirstPage, newest)}, err
	}
	if n, err := fmt.Sscanf(opts.Continue, emptyFirstPage+"%d", &opts.Revision); n == 1 && err == nil {
		opts.Continue = ""
	}
	page, err := b.Backend.ListPage(ctx, typ, tenancy, prefix, opts)
	b.tokens.Store(page.Continue, true)
	return page, err
}

// TestProcessDefects checks that the topic Processes finds listings that only one process can continue.
func TestProcessDefects(t *testing.T) {
	for _, d := range []struct{ bug, by, says string }{
		{bug: "", by: "Processes/Pages", says: "^$"},
		{bug: emptyFirstPage, by: "Processes/Pages", says: "^$"},
		{bug: "a token goes with its process", by: "Processes/Pages", says: "ListPage of .*compacted"},
		{bug: "revisions of other processes are the present", by: "Processes/Revisions", says: "a listing in several processes shows round"},
	} {
		t.Run(d.by+" "+d.bug, func(t *testing.T) {
			t.Parallel()
			h := Harness{Processes: true, Timeout: time.Minute, URL: func(t testing.TB) string {
				return "selfish://" + filepath.Join(t.TempDir(), "store.db") + "?bug=" + url.QueryEscape(d.bug)
			}}
			h.complete(t)
			if r := checkCase(t.Context(), &h, d.by, caseNamed(t, d.by)); !regexp.MustCompile(d.says).MatchString(r.Failure) {
				t.Errorf("got the failure %q, want %q", r.Failure, d.says)
			}
		})
	}
}
