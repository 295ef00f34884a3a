package web_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
	"github.com/ashlar-dev/storage/service/web"
)

// Every request gets an answer in JSON that is not an internal error. An accepted resource can be read and written back.
func FuzzRequest(f *testing.F) {
	f.Add("GET", "/demo/v1/album/a", "", "")
	f.Add("PUT", "/demo/v1/album/a", `{"data":`+everything+`}`, "application/json")
	f.Add("PUT", "/demo/v1/album/a?version=x", `{"data":{"@type":"type.googleapis.com/demo.v1.Album","@value":"AP8="}}`, "")
	f.Add("PUT", "/demo/v1/label/a%2fb", `{"data":{"value":{"a":[1,{}]}},"owner":{"name":"x"}}`, "")
	f.Add("PUT", "/demo/v1/album/a/status/a/b?uid=u", `{"observedGeneration":"x","conditions":[{"resource":{}}]}`, "")
	f.Add("GET", "/demo/v1/album?limit=1&continue=x&ns=*", "", "")
	f.Add("GET", "/demo/v1/studio/a/owned?uid=b", "", "")
	f.Add("DELETE", "/demo/v1/studio/a?version=b", "", "")
	f.Add("HEAD", "/openapi.json", "", "")
	f.Add("GET", "/demo/v1/album?watch&cursor=x", "", "")
	types := map[string]*registry.Registry{"registered": catalog(f), "open": registry.NewOpen(registry.Type{})}
	f.Fuzz(func(t *testing.T, method, target, body, content string) {
		asked, err := url.ParseRequestURI(target)
		if err != nil || !strings.HasPrefix(target, "/") || asked.Query().Has("watch") && asked.Query().Get("cursor") == "" {
			return // a watch without a cursor has no end
		}
		for _, registered := range types {
			b := inmem.New(nil)
			h := web.NewHandler(service.New(b, registered, nil).Client(), registered, nil)
			send := func(method, body string) *httptest.ResponseRecorder {
				r := &http.Request{Method: method, URL: asked, RequestURI: target, Header: http.Header{"Content-Type": {content}}}
				r.Body = http.NoBody
				if body != "" {
					r.Body = readCloser{strings.NewReader(body)}
				}
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r.WithContext(t.Context()))
				return w
			}
			w := send(method, body)
			if w.Code == http.StatusInternalServerError || w.Code < 200 {
				t.Errorf("%d: %s", w.Code, w.Body)
			}
			if text := w.Body.Bytes(); w.Code != http.StatusNoContent && !json.Valid(text) {
				t.Errorf("the answer is not JSON: %q", text)
			}
			if method == http.MethodPut && w.Code == http.StatusOK && !strings.Contains(asked.Path, "/status/") {
				asked = &url.URL{Path: asked.Path}
				if again := send(method, w.Body.String()); again.Code != http.StatusOK {
					t.Errorf("%s cannot be put back: %d: %s", w.Body, again.Code, again.Body)
				}
			}
			b.Close()
		}
	})
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }
