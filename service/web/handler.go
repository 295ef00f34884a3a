package web

import (
	"context"
	"net/http"
	"time"

	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
)

// handler serves the HTTP mapping.
type handler struct {
	client       resourcegrpc.ResourceServiceClient
	routes       routes
	document     document
	maxBody      int64
	authenticate func(ctx context.Context, token string) error // nil: only the service authenticates
	stallTimeout time.Duration
	bodyTimeout  time.Duration
}

// request is a request with its parsed path and query.
type request struct {
	*http.Request
	target target
	query  query
}
