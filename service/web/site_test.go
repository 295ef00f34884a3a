package web_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
	"github.com/ashlar-dev/storage/service/web"
	"github.com/ashlar-dev/storage/sqlite"
)

// site is a handler mounted below /api on its own server. Every answer is validated against the OpenAPI document.
type site struct {
	t       testing.TB
	url     string
	http    *http.Server
	backend storage.Backend
	service *service.Server
	client  resourcegrpc.ResourceServiceClient
	checker *checker // nil if requests are not checked
}

// backends are the stores of the tests.
var backends = map[string]func(t testing.TB) storage.Backend{
	"memory": func(testing.TB) storage.Backend { return inmem.New(nil) },
	"sqlite": func(t testing.TB) storage.Backend {
		b, err := sqlite.New(t.Context(), filepath.Join(t.TempDir(), "store.db"), nil)
		require.NoError(t, err)
		return b
	},
}

// transports are the connections between the handler and the service.
var transports = map[string]func(t testing.TB, s *service.Server) resourcegrpc.ResourceServiceClient{
	"in the process": func(_ testing.TB, s *service.Server) resourcegrpc.ResourceServiceClient { return s.Client() },
	"by gRPC": func(t testing.TB, s *service.Server) resourcegrpc.ResourceServiceClient {
		server := grpc.NewServer()
		s.Register(server)
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		served := make(chan error)
		go func() { served <- server.Serve(listener) }()
		cc, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		t.Cleanup(func() { cc.Close(); server.Stop(); <-served })
		return resourcegrpc.NewResourceServiceClient(cc)
	},
}

// everyTransport runs a test on every backend over every transport.
func everyTransport(t *testing.T, types *registry.Registry, test func(t *testing.T, s *site)) {
	t.Helper()
	for backend, open := range backends {
		for name, connect := range transports {
			t.Run(backend+" "+name, func(t *testing.T) {
				t.Parallel()
				test(t, newSite(t, types, open, connect, nil))
			})
		}
	}
}

// memorySite is a site on memory, in the process.
func memorySite(t testing.TB, types *registry.Registry, o *web.Options, tune ...func(*http.Server)) *site {
	t.Helper()
	return newSite(t, types, backends["memory"], transports["in the process"], o, tune...)
}

func newSite(t testing.TB, types *registry.Registry, open func(testing.TB) storage.Backend,
	connect func(testing.TB, *service.Server) resourcegrpc.ResourceServiceClient, o *web.Options, tune ...func(*http.Server)) *site {
	t.Helper()
	s := &site{t: t, backend: open(t)}
	t.Cleanup(func() { s.backend.Close() })
	s.service = service.New(s.backend, types, &service.Options{
		Authenticate: func(_ context.Context, token string, _ *resourcepb.Tenancy) (registry.Caller, error) {
			if token == "wrong" {
				return nil, fmt.Errorf("%w: the token is not known", service.ErrUnauthenticated)
			}
			return reader(token), nil
		},
	})
	s.client = connect(t, s.service)
	options := web.Options{}
	if o != nil {
		options = *o
	}
	options.History, options.Kinds = s.service.History(), s.service.Kinds
	mux := http.NewServeMux()
	mux.Handle("/api/", http.StripPrefix("/api", web.NewHandler(s.client, types, &options)))
	server := httptest.NewUnstartedServer(mux)
	s.http = server.Config
	for _, f := range tune {
		f(s.http)
	}
	server.Start()
	t.Cleanup(server.Close)
	t.Cleanup(s.service.Drain)
	s.url = server.URL + "/api"
	checker := checkerOf(t, s.get("/openapi.json").body)
	s.checker = &checker
	return s
}

// checker compares requests and answers with an OpenAPI document.
type checker struct{ router routers.Router }

// checkers has one checker for each document, because creating one is slow.
var checkers struct {
	sync.Mutex
	made map[string]checker
}

func checkerOf(t testing.TB, document string) checker {
	t.Helper()
	checkers.Lock()
	defer checkers.Unlock()
	if checker, ok := checkers.made[document]; ok {
		return checker
	}
	doc, err := openapi3.NewLoader().LoadFromData([]byte(document))
	require.NoError(t, err)
	require.NoError(t, doc.Validate(t.Context()))
	router, err := gorillamux.NewRouter(doc)
	require.NoError(t, err)
	if checkers.made == nil {
		checkers.made = map[string]checker{}
	}
	checkers.made[document] = checker{router}
	return checkers.made[document]
}

// request returns an error unless the document describes the request.
func (c checker) request(r *http.Request) error {
	input, err := c.find(r)
	if err != nil {
		return err
	}
	return openapi3filter.ValidateRequest(r.Context(), input)
}

// response returns an error unless the document describes the answer to the request.
func (c checker) response(r *http.Request, got *http.Response) error {
	input, err := c.find(r)
	if err != nil {
		return err
	}
	return openapi3filter.ValidateResponse(r.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: got.StatusCode, Header: got.Header, Body: got.Body, Options: input.Options,
	})
}

func (c checker) find(r *http.Request) (*openapi3filter.RequestValidationInput, error) {
	route, params, err := c.router.FindRoute(r)
	return &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route, Options: &openapi3filter.Options{
		AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, SkipSettingDefaults: true,
		IncludeResponseStatus: true, RejectWhenRequestBodyNotSpecified: true,
	}}, err
}

// answer is the answer to a request.
type answer struct {
	code   int
	header http.Header
	body   string
}

// object returns the body as JSON.
func (a answer) object(t testing.TB) map[string]any {
	t.Helper()
	var o map[string]any
	require.NoError(t, json.Unmarshal([]byte(a.body), &o), a.body)
	return o
}

// message returns the message of an error.
func (a answer) message(t testing.TB) string {
	t.Helper()
	said, ok := a.object(t)["error"].(map[string]any)
	require.True(t, ok, a.body)
	require.EqualValues(t, a.code, said["code"])
	return said["message"].(string)
}

// version returns the version of the resource in the body.
func (a answer) version(t testing.TB) string {
	t.Helper()
	return a.object(t)["version"].(string)
}

func (s *site) get(path string, headers ...string) answer {
	s.t.Helper()
	return s.do(http.MethodGet, path, "", headers...)
}

func (s *site) put(path, body string, headers ...string) answer {
	s.t.Helper()
	return s.do(http.MethodPut, path, body, headers...)
}

func (s *site) delete(path string, headers ...string) answer {
	s.t.Helper()
	return s.do(http.MethodDelete, path, "", headers...)
}

// unchecked returns the site without its document, for valid requests that the document does not describe.
func (s *site) unchecked() *site {
	other := *s
	other.checker = nil
	return &other
}

// do sends a request, with headers by name and value. If it succeeds, the request and the answer must match the OpenAPI document.
func (s *site) do(method, path, body string, headers ...string) answer {
	s.t.Helper()
	newRequest := func() *http.Request {
		r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
		require.NoError(s.t, err)
		if body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		return r
	}
	got, err := http.DefaultClient.Do(newRequest())
	require.NoError(s.t, err)
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	require.NoError(s.t, err)
	if s.checker != nil && method != http.MethodHead && (got.StatusCode < 300 || got.StatusCode == http.StatusConflict) {
		got.Body = io.NopCloser(bytes.NewReader(text))
		require.NoError(s.t, s.checker.request(newRequest()), "%s %s %s", method, path, body)
		require.NoError(s.t, s.checker.response(newRequest(), got), "%s %s: %s", method, path, text)
	}
	return answer{got.StatusCode, got.Header, string(text)}
}
