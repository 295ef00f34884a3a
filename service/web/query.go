package web

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// The query parameters of each operation.
var (
	tenancyParameters    = []string{"partition", "namespace", "ns"}
	consistentParameters = []string{"consistent", "RequireConsistent"}
	pageParameters       = []string{"limit", "continue"}
	filterParameters     = slices.Concat(tenancyParameters, []string{"name_prefix"})
	watchParameters      = slices.Concat([]string{"watch"}, filterParameters, []string{"cursor", "before", "bookmark", "timeout"})

	readParameters      = slices.Concat(tenancyParameters, []string{"uid"}, consistentParameters, []string{"at"})
	writeParameters     = slices.Concat(tenancyParameters, []string{"uid", "version"})
	deleteParameters    = writeParameters
	statusParameters    = writeParameters
	ownedParameters     = slices.Concat(tenancyParameters, []string{"uid"}, consistentParameters, pageParameters, []string{"depth"})
	treeParameters      = slices.Concat(tenancyParameters, []string{"uid"}, consistentParameters, []string{"depth"})
	historyParameters   = slices.Concat(tenancyParameters, []string{"after", "until"})
	changesParameters   = slices.Concat([]string{"changes"}, historyParameters)
	diffParameters      = slices.Concat([]string{"diff"}, filterParameters, []string{"from", "to"})
	unwatchedParameters = slices.Concat(filterParameters, consistentParameters, pageParameters, []string{"at"})
	listParameters      = slices.Concat(unwatchedParameters, []string{"watch", "cursor", "before", "bookmark", "timeout", "changes", "after", "until", "diff", "from", "to"})
)

// flags are the parameters without a value.
var flags = []string{"consistent", "RequireConsistent", "watch", "before", "changes", "diff"}

// preconditions are the parameters that make a request conditional. An empty value, as from a broken script, must not make it unconditional.
var preconditions = []string{"version", "uid"}

// query is the query of a request. It has only known parameters, each once.
type query struct{ values url.Values }

// parseQuery parses a query that may have the parameters in known.
func parseQuery(raw string, known []string) (query, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return query{}, refuse(http.StatusBadRequest, "malformed query: %v", err)
	}
	q := query{values}
	for name := range values {
		if !slices.Contains(known, name) {
			return query{}, refuse(http.StatusBadRequest, "unknown query parameter %.80q: here it is one of %s", name, strings.Join(known, ", "))
		}
	}
	for name, given := range values {
		if len(given) > 1 {
			return query{}, refuse(http.StatusBadRequest, "the query parameter %s is given %d times", name, len(given))
		}
		if !utf8.ValidString(given[0]) {
			return query{}, refuse(http.StatusBadRequest, "the query parameter %s is not UTF-8: %.80q", name, given[0])
		}
		if slices.Contains(preconditions, name) && given[0] == "" {
			return query{}, refuse(http.StatusBadRequest, "the query parameter %s has no value", name)
		}
		if slices.Contains(flags, name) && given[0] != "" && given[0] != "true" && given[0] != "1" {
			return query{}, refuse(http.StatusBadRequest, "the query parameter %s takes no value: leave it out if it does not apply", name)
		}
	}
	if q.has("ns") && q.has("namespace") {
		return query{}, contradiction("the query has both ns and namespace, which are the same")
	}
	return q, nil
}

// only rejects parameters that are not in possible. where describes the situation in the error.
func (q query) only(possible []string, where string) error {
	for name := range q.values {
		if !slices.Contains(possible, name) {
			return contradiction("unknown query parameter %.80q: %s it is one of %s", name, where, strings.Join(possible, ", "))
		}
	}
	return nil
}

func (q query) get(name string) string { return q.values.Get(name) }
func (q query) has(name string) bool   { return q.values.Has(name) }

// consistent reports whether the query requests a linearizable answer.
func (q query) consistent() bool { return q.has("consistent") || q.has("RequireConsistent") }

// tenancy returns the tenancy of the query. The service fills in missing units.
func (q query) tenancy() *resourcepb.Tenancy {
	return &resourcepb.Tenancy{Partition: q.get("partition"), Namespace: q.get("namespace") + q.get("ns")}
}

// limit returns the limit of a page, or 0.
func (q query) limit() (int32, error) {
	if !q.has("limit") {
		return 0, nil
	}
	n, err := strconv.ParseInt(q.get("limit"), 10, 32)
	if err != nil || n < 1 {
		return 0, refuse(http.StatusBadRequest, "limit invalid: expected a whole number from 1 on, got %.80q", q.get("limit"))
	}
	return int32(n), nil
}

// maxSeconds is the maximum of parameters in seconds. openapi.json has it, too.
const maxSeconds = 24 * 60 * 60

// seconds returns the duration in a parameter, 0 if it is missing.
func (q query) seconds(name string) (time.Duration, error) {
	if !q.has(name) {
		return 0, nil
	}
	n, err := strconv.ParseInt(q.get(name), 10, 32)
	if err != nil || n < 1 || n > maxSeconds {
		return 0, refuse(http.StatusBadRequest, "%s invalid: expected a whole number of seconds from 1 to %d, got %.80q", name, maxSeconds, q.get(name))
	}
	return time.Duration(n) * time.Second, nil
}

// interval returns the interval between bookmarks, or nil.
func (q query) interval() (*durationpb.Duration, error) {
	n, err := q.seconds("bookmark")
	if err != nil || n == 0 {
		return nil, err
	}
	return durationpb.New(n), nil
}

// anyTenancy returns the tenancy of the query, with "*" for missing units.
func (q query) anyTenancy() *resourcepb.Tenancy {
	t := q.tenancy()
	return &resourcepb.Tenancy{Partition: cmp.Or(t.GetPartition(), storage.Wildcard), Namespace: cmp.Or(t.GetNamespace(), storage.Wildcard)}
}

// revision returns the revision in a parameter, 0 if it is missing.
func (q query) revision(name string) (int64, error) {
	if !q.has(name) {
		return 0, nil
	}
	n, err := strconv.ParseInt(q.get(name), 10, 64)
	if err != nil || n < 1 {
		return 0, refuse(http.StatusBadRequest, "%s invalid: expected a revision, a whole number from 1 on, got %.80q", name, q.get(name))
	}
	return n, nil
}

// maxDepth is the maximum depth of a tree of owned resources. openapi.json has it, too.
const maxDepth = 16

// depth returns the number of generations of owned resources.
func (q query) depth() (int, error) {
	if !q.has("depth") {
		return 1, nil
	}
	n, err := strconv.Atoi(q.get("depth"))
	if err != nil || n < 1 || n > maxDepth {
		return 0, refuse(http.StatusBadRequest, "depth invalid: expected a whole number from 1 to %d, got %.80q", maxDepth, q.get("depth"))
	}
	return n, nil
}
