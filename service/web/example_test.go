package web_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
	"github.com/ashlar-dev/storage/service/web"
)

// A service in memory is mounted below /api; the example writes and reads a resource.
func Example() {
	types, err := registry.New(registry.Type{
		Type:  &resourcepb.Type{Group: "catalog", GroupVersion: "v1", Kind: "Pointer"},
		Proto: &resourcepb.Reference{},
		Scope: registry.ScopeNamespace,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	backend := inmem.New(nil)
	defer backend.Close()
	server := service.New(backend, types, nil)
	mux := http.NewServeMux()
	mux.Handle("/api/", http.StripPrefix("/api", web.NewHandler(server.Client(), types, nil)))

	for _, request := range []*http.Request{
		httptest.NewRequest(http.MethodPut, "/api/catalog/v1/pointer/home", strings.NewReader(`{"data": {"name": "a", "section": "b"}}`)),
		httptest.NewRequest(http.MethodPut, "/api/catalog/v1/pointer/home?version=old", strings.NewReader(`{"data": {"name": "c"}}`)),
		httptest.NewRequest(http.MethodGet, "/api/catalog/v1/pointer/gone", nil),
		httptest.NewRequest(http.MethodDelete, "/api/catalog/v1/pointer/home", nil),
	} {
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, request)
		fmt.Println(request.Method, request.URL.Path, answer.Code)
		if answer.Code >= http.StatusBadRequest {
			text, _ := io.ReadAll(answer.Body)
			fmt.Print(string(text))
		}
	}
	// Output:
	// PUT /api/catalog/v1/pointer/home 200
	// PUT /api/catalog/v1/pointer/home 409
	// {
	//   "error": {
	//     "code": 409,
	//     "status": "ABORTED",
	//     "reason": "CAS_FAILURE",
	//     "message": "CAS operation failed because the given version doesn't match what is stored"
	//   }
	// }
	// GET /api/catalog/v1/pointer/gone 404
	// {
	//   "error": {
	//     "code": 404,
	//     "status": "NOT_FOUND",
	//     "reason": "NOT_FOUND",
	//     "message": "resource not found"
	//   }
	// }
	// DELETE /api/catalog/v1/pointer/home 204
}
