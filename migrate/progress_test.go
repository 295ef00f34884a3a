package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// recordedStats returns the counters of a run, and its reports.
func recordedStats() (*stats, *[]Progress) {
	var reports []Progress
	return newStats(func(p Progress) { reports = append(reports, p) }), &reports
}

// The rate covers the last ten reports. The remaining time is computed from it, except while following.
func TestRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, reports := recordedStats()
		s.total.Store(1000)
		s.enter(Copying)
		s.now() // no time has passed
		for second := range 20 {
			time.Sleep(time.Second)
			if second < 10 {
				s.count.Add(10)
			} else {
				s.count.Add(20)
			}
			s.now()
		}
		checkRate := func(i int, rate float64, remaining time.Duration) {
			t.Helper()
			if got := (*reports)[i]; got.Rate != rate || got.Remaining != remaining || got.Total != 1000 {
				t.Errorf("report %d of %d resources of %d: %v a second, %v remaining, expected %v and %v", i, got.Count, got.Total, got.Rate, got.Remaining, rate, remaining)
			}
		}
		checkRate(0, 0, 0)
		checkRate(1, 0, 0)
		checkRate(2, 10, 99*time.Second)
		checkRate(11, 10, 90*time.Second)
		checkRate(12, 100./9, time.Duration(880/(100./9)*float64(time.Second)))
		checkRate(21, 20, 35*time.Second)

		s.total.Store(300) // as many as were processed
		s.now()
		if last := (*reports)[len(*reports)-1]; last.Remaining != 0 {
			t.Errorf("%v remain after the last resource", last.Remaining)
		}
		s.total.Store(1000)
		s.enter(Following)
		s.events.Add(5)
		time.Sleep(time.Second)
		s.now()
		if last := (*reports)[len(*reports)-1]; last.Rate != 5 || last.Remaining != 0 {
			t.Errorf("5 events in a second: %v a second, %v remaining", last.Rate, last.Remaining)
		}
	})
}

// A phase is reported when it begins, and not again when it continues. A warning is in the next report only.
func TestReports(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, reports := recordedStats()
		began := time.Now()
		s.enter(Copying)
		s.enter(Copying)
		s.warn(errors.New("the source does not answer"))
		s.enter(Following)
		stop := s.report(t.Context())
		time.Sleep(2500 * time.Millisecond)
		s.countFollowed(began)
		stop()
		var got []string
		for _, p := range *reports {
			got = append(got, fmt.Sprintf("%s %v %v %v", p.Phase, p.Duration, p.Lag, p.Warning))
		}
		want := []string{"copy 0s 0s <nil>", "follow 0s -1ns the source does not answer", "follow 1s -1ns <nil>", "follow 2s -1ns <nil>", "follow 2.5s 2.5s <nil>"}
		if !slices.Equal(got, want) {
			t.Errorf("got the reports %q, expected %q", got, want)
		}
	})
}

// The summary of a comparison counts each kind of difference.
func TestReportText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		report Report
		equal  bool
		text   string
	}{
		{Report{Source: 2, Target: 2, Bytes: 10, SourceDigest: "0123456789abcdefg"}, true, "equal: 2 resources, 10 bytes, sha256 0123456789abcdef"},
		{Report{Source: 2, Target: 1, Missing: 1}, false, "different: source 2, target 1 resources; 1 missing, 0 extra, 0 different"},
		{Report{Extra: 1}, false, "different: source 0, target 0 resources; 0 missing, 1 extra, 0 different"},
		{Report{Different: 1}, false, "different: source 0, target 0 resources; 0 missing, 0 extra, 1 different"},
		{Report{References: 1}, false, "different: source 0, target 0 resources; 0 missing, 0 extra, 0 different, 1 wrong owner references"},
		{Report{Columns: 1}, false, "different: source 0, target 0 resources; 0 missing, 0 extra, 0 different, 1 rows that contradict their resources"},
	} {
		if c.report.Equal() != c.equal || c.report.String() != c.text {
			t.Errorf("got %v, %q, expected %v, %q", c.report.Equal(), c.report.String(), c.equal, c.text)
		}
	}
	res := &resourcepb.Resource{Id: &resourcepb.ID{Name: "a"}}
	for _, d := range []Difference{{Kind: Missing, Source: res}, {Kind: Missing, Target: res}} {
		if got := d.String(); !strings.HasPrefix(got, string(Missing)+": ") || !strings.Contains(got, `"a"`) {
			t.Errorf("the text of a difference is %q", got)
		}
	}
}

// A call is repeated after growing pauses while the database gives no consistent answer, and until the timeout.
func TestRetries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var at []time.Duration
		warnings := 0
		r := retrier{timeout: 5 * time.Second, waiting: func(error) { warnings++ }}
		err := r.do(t.Context(), "write the journal", func(context.Context) error {
			at = append(at, time.Since(began))
			return storage.ErrInconsistent
		})
		const ms = time.Millisecond
		want := []time.Duration{0, 50 * ms, 150 * ms, 350 * ms, 750 * ms, 1550 * ms, 3150 * ms, 5150 * ms}
		if !slices.Equal(at, want) || warnings != len(want)-1 {
			t.Errorf("attempts at %v with %d warnings, expected them at %v", at, warnings, want)
		}
		if !errors.Is(err, storage.ErrInconsistent) || !strings.HasPrefix(err.Error(), "write the journal: failed for 5s: ") {
			t.Errorf("got error %v", err)
		}

		calls := 0
		err = retrier{timeout: time.Minute}.do(t.Context(), "", func(context.Context) error {
			if calls++; calls < 3 {
				return storage.ErrInconsistent
			}
			return storage.ErrInvalid
		})
		if calls != 3 || !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("%d calls with error %v, expected the third call's", calls, err)
		}

		ctx, cancel := context.WithCancel(t.Context())
		calls = 0
		err = r.do(ctx, "", func(context.Context) error {
			calls++
			cancel()
			return storage.ErrInconsistent
		})
		if calls != 1 || !errors.Is(err, storage.ErrInconsistent) {
			t.Errorf("%d calls after the end of the context, error %v", calls, err)
		}
	})
}
