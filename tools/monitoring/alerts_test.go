package monitoring

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"go.yaml.in/yaml/v3"
)

// ruleTests is the content of alerts_test.yaml, in the format of `promtool test rules`, which also runs it.
type ruleTests struct {
	RuleFiles          []string       `yaml:"rule_files"`
	EvaluationInterval model.Duration `yaml:"evaluation_interval"`
	Tests              []ruleTest
}

// ruleTest has series, and the alerts that fire because of them at some times. An alert without exp_alerts must be silent.
type ruleTest struct {
	Name        string
	Interval    model.Duration
	InputSeries []struct{ Series, Values string } `yaml:"input_series"`
	Alerts      []struct {
		EvalTime model.Duration `yaml:"eval_time"`
		Name     string         `yaml:"alertname"`
		Expected []struct {
			Labels      map[string]string `yaml:"exp_labels"`
			Annotations map[string]string `yaml:"exp_annotations"`
		} `yaml:"exp_alerts"`
	} `yaml:"alert_rule_test"`
}

// firing evaluates the rules of a file on the series of a test, at the interval, up to and including the time at. It returns the labels and
// annotations of the firing alerts by the name of the alert, sorted.
func (test ruleTest) firing(t *testing.T, file string, interval, at time.Duration) map[string][]string {
	t.Helper()
	var input strings.Builder
	fmt.Fprintf(&input, "load %v\n", test.Interval)
	for _, s := range test.InputSeries {
		fmt.Fprintf(&input, "  %s %s\n", s.Series, s.Values)
	}
	loader, err := promqltest.NewLazyLoader(input.String(), promqltest.LazyLoaderOpts{EnableAtModifier: true, EnableNegativeOffset: true})
	if err != nil {
		t.Fatal(err)
	}
	defer loader.Close()
	manager := rules.NewManager(&rules.ManagerOptions{
		QueryFunc: rules.EngineQueryFunc(loader.QueryEngine(), loader.Storage()), AppendableV2: loader.Storage(), Context: t.Context(),
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {}, Logger: slog.New(slog.DiscardHandler), Parser: parser.NewParser(parser.Options{}),
	})
	groups, errs := manager.LoadGroups(interval, labels.EmptyLabels(), "", nil, false, file)
	if errs != nil {
		t.Fatal(errs)
	}
	for _, g := range groups {
		for _, r := range g.Rules() {
			r.(*rules.AlertingRule).SetRestored(true) // otherwise it fires late
		}
	}
	for ts := time.Duration(0); ts <= at; ts += interval {
		now := time.Unix(0, 0).UTC().Add(ts)
		loader.WithSamplesTill(now, func(err error) {
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range groups {
				g.Eval(loader.Context(), now)
			}
		})
	}
	firing := map[string][]string{}
	for _, g := range groups {
		for _, r := range g.Rules() {
			if r.LastError() != nil {
				t.Errorf("%s: %v", r.Name(), r.LastError())
			}
			for _, alert := range r.(*rules.AlertingRule).ActiveAlerts() {
				if alert.State == rules.StateFiring {
					firing[r.Name()] = append(firing[r.Name()], describe(alert.Labels.Map(), alert.Annotations.Map()))
				}
			}
			slices.Sort(firing[r.Name()])
		}
	}
	return firing
}

// describe returns the labels, except the name of the alert, and the annotations of an alert.
func describe(alertLabels, annotations map[string]string) string {
	alertLabels = maps.Clone(alertLabels)
	delete(alertLabels, labels.AlertName)
	return fmt.Sprint(alertLabels, " ", annotations)
}

// The alert rules fire on the series of alerts_test.yaml, with its labels and texts. The file has series for each rule: some fire it, and some do not.
func TestAlertRules(t *testing.T) {
	text, err := os.ReadFile("../../docs/monitoring/alerts_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file ruleTests
	strict := yaml.NewDecoder(bytes.NewReader(text))
	strict.KnownFields(true)
	if err := strict.Decode(&file); err != nil {
		t.Fatal(err)
	}
	if len(file.RuleFiles) != 1 {
		t.Fatal(file.RuleFiles)
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, want := range test.Alerts {
			got := test.firing(t, "../../docs/monitoring/"+file.RuleFiles[0], time.Duration(file.EvaluationInterval), time.Duration(want.EvalTime))
			var expected []string
			for _, e := range want.Expected {
				expected = append(expected, describe(e.Labels, e.Annotations))
			}
			slices.Sort(expected)
			if !slices.Equal(got[want.Name], expected) {
				t.Errorf("%s, %s at %v:\n got %q\nwant %q", test.Name, want.Name, want.EvalTime, got[want.Name], expected)
			}
			if len(expected) > 0 {
				fires[want.Name] = true
			} else {
				silent[want.Name] = true
			}
		}
	}
	var rulesFile struct {
		Groups []struct{ Rules []struct{ Alert string } }
	}
	readFile(t, "alerts.yaml", yaml.Unmarshal, &rulesFile)
	for _, g := range rulesFile.Groups {
		for _, r := range g.Rules {
			if !fires[r.Alert] || !silent[r.Alert] {
				t.Errorf("%s: tested firing %v, silent %v", r.Alert, fires[r.Alert], silent[r.Alert])
			}
		}
	}
}
