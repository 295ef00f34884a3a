package web

import (
	"net/http"
	"time"

	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
	"github.com/ashlar-dev/storage/service/registry"
)

// Options are the options of a handler.
type Options struct {
	// MaxBody is the largest size of a request's body in bytes. 0 is 4 MiB.
	MaxBody int64
}

const (
	defaultMaxBody = 4 << 20
	// defaultStallTimeout is how long a client may leave what it was sent unread before its stream is ended. The memory of a slow client is bounded in
	// any case.
	defaultStallTimeout = time.Minute
)

// NewHandler returns the HTTP mapping of a resource service of the types in types, which client calls. Its paths begin with a type's group:
// below another path it is mounted by http.StripPrefix.
//
// Streams end when their requests' contexts do, and when the service ends them: call Server.Drain before http.Server.Shutdown, which waits
// for streams. Time limits of the http.Server for reading and writing do not hold for streams.
func NewHandler(client resourcegrpc.ResourceServiceClient, types *registry.Registry, o *Options) http.Handler {
	h := &handler{client: client, routes: newRoutes(types), maxBody: defaultMaxBody, stallTimeout: defaultStallTimeout}
	if o != nil && o.MaxBody > 0 {
		h.maxBody = o.MaxBody
	}
	h.document = newDocument(types)
	return h
}

type handler struct {
	client       resourcegrpc.ResourceServiceClient
	routes       routes
	document     document
	maxBody      int64
	stallTimeout time.Duration
}

// request is a request on its way through the handler.
type request struct {
	*http.Request
	target target
	query  query
}

// operation is what a method does at a path.
type operation struct {
	// parameters are the query parameters that it takes.
	parameters []string
	serve      func(http.ResponseWriter, *request) error
}

// operations returns what can be done at a target, by method.
func (h *handler) operations(t target) map[string]operation {
	switch {
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
	w.Header().Set("Cache-Control", "no-store") // answers are for one caller, whom caches do not know by x-consul-token
	if err := h.serve(w, r); err != nil {
		fail(w, err)
	}
}

// serve does what a request asks for. Nothing was answered yet if it returns an error.
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
		method = http.MethodGet // net/http leaves the body out
	}
	op, ok := operations[method]
	if !ok {
		return notAllowed(w, r.Method, operations)
	}
	query, err := parseQuery(r.URL.RawQuery, op.parameters)
	if err != nil {
		return err
	}
	ctx, err := callContext(r.Context(), r.Header, query)
	if err != nil {
		return err
	}
	return op.serve(w, &request{Request: r.WithContext(ctx), target: t, query: query})
}
