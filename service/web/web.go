package web

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
	"github.com/ashlar-dev/storage/service/registry"
)

// Options configures a handler.
type Options struct {
	// MaxBody is the maximum size of a request body in bytes. 0 is 4 MiB.
	MaxBody int64
	// Authenticate returns an error for a token, "" for none, that the service would refuse. The handler calls it before it reads the body of a
	// request, so that a caller without a valid token cannot make it hold bodies. If nil, only the service refuses callers.
	Authenticate func(ctx context.Context, token string) error
	// History reads the past. If nil, requests for the past are refused.
	History resourcegrpc.HistoryServiceClient
	// Identify returns the caller with a token, "" for none, for /whoami. If nil, callers have no names.
	Identify func(ctx context.Context, token string) (Identity, error)
	// Kinds returns the stored kinds of a group that equal a kind when case is ignored and that the caller may list, as Server.Kinds does. With it, the case
	// of a kind in a path does not matter in an open registry if one such kind is stored.
	Kinds func(ctx context.Context, group, kind string, tenancy *resourcepb.Tenancy) ([]string, error)
}

const (
	defaultMaxBody = 4 << 20
	// defaultStallTimeout is the maximum time that a write to a client of a stream blocks before the stream ends. The memory of a slow client is bounded
	// in any case.
	defaultStallTimeout = time.Minute
	// defaultBodyTimeout is the timeout for the body of a request. A body of 4 MiB needs 70 kB a second.
	defaultBodyTimeout = time.Minute
)

// NewHandler returns the HTTP mapping of a resource service with the given types, which it calls through client. Its paths begin with a type's
// group: use http.StripPrefix to mount it below another path.
//
// Streams end when the contexts of their requests end or when the service ends them: call Server.Drain before http.Server.Shutdown, which waits for
// streams. The read and write timeouts of the http.Server do not apply to streams.
func NewHandler(client resourcegrpc.ResourceServiceClient, types *registry.Registry, o *Options) http.Handler {
	h := &handler{client: client, routes: newRoutes(types), maxBody: defaultMaxBody, stallTimeout: defaultStallTimeout,
		bodyTimeout: defaultBodyTimeout}
	if o != nil {
		h.maxBody = cmp.Or(max(o.MaxBody, 0), defaultMaxBody)
		h.authenticate, h.history, h.identify, h.kinds = o.Authenticate, o.History, o.Identify, o.Kinds
	}
	if h.identify == nil {
		h.identify = func(context.Context, string) (Identity, error) { return Identity{Rules: []Rule{}}, nil }
	}
	h.document = newDocument(types)
	return h
}

// operation is the operation of a method at a path.
type operation struct {
	// parameters are the accepted query parameters.
	parameters []string
	serve      func(http.ResponseWriter, *request) error
}

// operations returns the operations on a target, by method.
func (h *handler) operations(t target) map[string]operation {
	switch {
	case t.sub == whoamiSegment:
		return map[string]operation{http.MethodGet: {nil, h.whoAmI}}
	case t.sub == typesSegment:
		return map[string]operation{http.MethodGet: {tenancyParameters, h.listTypes}}
	case t.sub == revisionsSegment:
		return map[string]operation{http.MethodGet: {tenancyParameters, h.revisions}}
	case t.sub == historySegment:
		return map[string]operation{http.MethodGet: {historyParameters, h.changes}}
	case t.name == "":
		return map[string]operation{http.MethodGet: {listParameters, h.list}}
	case t.sub == ownedSegment:
		return map[string]operation{http.MethodGet: {ownedParameters, h.listOwned}}
	case t.sub == statusSegment:
		return map[string]operation{http.MethodPut: {statusParameters, h.writeStatus}}
	}
	return map[string]operation{
		http.MethodGet:    {readParameters, h.read},
		http.MethodPut:    {writeParameters, h.write},
		http.MethodDelete: {deleteParameters, h.delete},
	}
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store") // answers are for one caller, and caches do not know x-consul-token
	if hasBody(r) {
		// The deadline ends with the request, and at the start of a watch. A writer without deadlines has no connection to hold.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(h.bodyTimeout))
	}
	if err := h.serve(w, r); err != nil {
		fail(w, err)
	}
}

// serve serves a request. If it returns an error, nothing has been written.
func (h *handler) serve(w http.ResponseWriter, r *http.Request) error {
	if r.URL.Path == documentPath {
		return h.document.serve(w, r)
	}
	t, err := h.routes.find(r.URL.EscapedPath())
	if err != nil {
		return err
	}
	operations := h.operations(t)
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet // net/http omits the body
	}
	op, ok := operations[method]
	if !ok {
		return notAllowed(w, r.Method, slices.Collect(maps.Keys(operations)))
	}
	if err := checkConditions(r); err != nil {
		return err
	}
	query, err := parseQuery(r.URL.RawQuery, op.parameters)
	if err != nil {
		return err
	}
	token, err := TokenOf(r.Header)
	if err != nil {
		return err
	}
	if h.authenticate != nil {
		if err := h.authenticate(r.Context(), token); err != nil {
			if r.ProtoMajor == 1 && hasBody(r) {
				w.Header().Set("Connection", "close") // otherwise net/http reads the body that was refused
			}
			return err
		}
	}
	ctx := callContext(r.Context(), token, query)
	if err := h.resolveKind(ctx, &t, query); err != nil {
		return err
	}
	return op.serve(w, &request{Request: r.WithContext(ctx), target: t, query: query})
}
