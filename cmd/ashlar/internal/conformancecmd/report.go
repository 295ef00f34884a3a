package conformancecmd

import (
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"time"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/conformance"
	"github.com/ashlar-dev/storage/conformance/faults"
)

//go:embed report.html
var reportText string

var reportTemplate = template.Must(template.New("report").Funcs(template.FuncMap{"short": cli.Duration, "counts": faultCounts}).Parse(reportText))

// writeReport writes the report to a temporary file, which replaces the named file once it is complete.
func (n *results) writeReport(name string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return cli.Failedf("write the report: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // incomplete, so useless
		}
	}()
	err = reportTemplate.Execute(f, struct {
		Store, Location, Version, Began string
		Took                            time.Duration
		Answers, Broken                 []*guaranteeResult
		Cases                           []conformance.Result
		Faults                          *faults.Report
	}{n.store, n.location, cli.VersionLine(), n.startTime.UTC().Format(time.RFC3339), n.took, n.byGuarantee(), n.broken(), n.cases, n.faults})
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return cli.Failedf("write the report: %w", err)
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
