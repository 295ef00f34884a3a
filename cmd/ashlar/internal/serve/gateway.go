package serve

import (
	"context"
	"encoding/json"
	"math"
	"net"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"go.etcd.io/etcd/api/v3/etcdserverpb/gw"
	"go.etcd.io/etcd/api/v3/version"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protojson"
)

// gateway translates etcd's JSON API under /v3/ into calls of a separate gRPC server in this process.
type gateway struct {
	handler  http.Handler
	listener *bufconn.Listener
	conn     *grpc.ClientConn
}

// gatewayBuffer is the size of the buffer between the gateway and its server.
const gatewayBuffer = 1 << 20

// maxEtcdJSON is the maximum size of a JSON request. It exceeds maxEtcdRequest because base64 makes keys and values a third larger.
const maxEtcdJSON = 2 * maxEtcdRequest

func newGateway(ctx context.Context) (*gateway, error) {
	g := &gateway{listener: bufconn.Listen(gatewayBuffer)}
	var err error
	g.conn, err = grpc.NewClient("passthrough:///gateway",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return g.listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)),
	)
	if err != nil {
		return nil, err
	}
	mux := runtime.NewServeMux(runtime.WithMarshalerOption(runtime.MIMEWildcard, &runtime.HTTPBodyMarshaler{Marshaler: &runtime.JSONPb{
		MarshalOptions:   protojson.MarshalOptions{UseProtoNames: true},
		UnmarshalOptions: protojson.UnmarshalOptions{DiscardUnknown: true},
	}}))
	for _, register := range []func(context.Context, *runtime.ServeMux, *grpc.ClientConn) error{
		gw.RegisterKVHandler, gw.RegisterWatchHandler, gw.RegisterLeaseHandler,
		gw.RegisterClusterHandler, gw.RegisterMaintenanceHandler, gw.RegisterAuthHandler,
	} {
		if err := register(ctx, mux, g.conn); err != nil {
			_ = g.conn.Close() // it has no calls
			return nil, err
		}
	}
	g.handler = http.MaxBytesHandler(mux, maxEtcdJSON)
	return g, nil
}

// rejectBrowsers rejects requests that a web page sends. etcd's API does not support browsers, and a page open on this machine must
// not reach a server that trusts every connection.
func rejectBrowsers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if from := r.Header.Get("Sec-Fetch-Site"); r.Header.Get("Origin") != "" || from != "" && from != "none" {
			writeText(w, http.StatusForbidden, "requests from browsers are not allowed")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// etcdHandler returns the HTTP handler that etcd serves at its client port.
func (s *server) etcdHandler(g *gateway) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/v3/", g.handler)
	mux.Handle("GET /metrics", s.metrics.prometheusHandler())
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		compatible := version.Cluster(version.Version) + ".0"
		writeJSON(w, http.StatusOK, version.Versions{Server: version.Version, Cluster: compatible, Storage: compatible})
	})
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, r *http.Request) {
		type health struct {
			Health string `json:"health"`
			Reason string `json:"reason"`
		}
		if err := s.ready.check(r.Context()); err != nil {
			writeJSON(w, http.StatusServiceUnavailable, health{"false", s.notReadyText(r.Context(), err)})
			return
		}
		writeJSON(w, http.StatusOK, health{Health: "true"})
	})
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := s.ready.check(r.Context()); err != nil {
			writeText(w, http.StatusServiceUnavailable, "not ready: "+s.notReadyText(r.Context(), err))
			return
		}
		writeText(w, http.StatusOK, "ok")
	})
	return rejectBrowsers(mux)
}

func writeJSON(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(value) // the client may have disconnected
}

// maxEtcdRequest is the maximum size of a gRPC request: etcd's default, and more than the 1 MiB that a transaction of a store may have.
const maxEtcdRequest = 2 << 20
