package conformancecmd

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/conformance"
	"github.com/ashlar-dev/storage/conformance/faults"
)

// progress shows the progress of the conformance command.
type progress struct {
	mu       sync.Mutex
	line     *cli.StatusLine
	failures int
}

func newProgress(out io.Writer) *progress {
	p := &progress{line: cli.NewStatusLine(out)}
	p.line.Wait() // a short run needs no line
	return p
}

// showCase shows that a case has finished. A failed case gets its own line at once.
func (p *progress) showCase(r conformance.Result, done, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Failure != "" {
		p.failures++
		p.line.Print(r.Case + " failed")
	}
	p.line.Show(fmt.Sprintf("%d of %d cases, %d failed", done, total, p.failures), false)
}

// showFaults shows the progress of a run under faults until stop is called.
func (p *progress) showFaults(o *faults.Options) (stop func()) {
	var last string
	began := time.Now()
	show := func() {
		p.line.Show(fmt.Sprintf("under faults: %s of %s%s", cli.Duration(time.Since(began)), cli.Duration(o.For), last), false)
	}
	o.Log = func(format string, args ...any) {
		p.mu.Lock()
		defer p.mu.Unlock()
		last = "; " + fmt.Sprintf(format, args...)
		show()
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.mu.Lock()
				show()
				p.mu.Unlock()
			case <-end:
				return
			}
		}
	}()
	return func() { close(end); <-ended }
}

// clear clears the line for the output that follows.
func (p *progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line.Clear()
}
