package web

import (
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
	stallTimeout time.Duration
}

// request is a request with its parsed path and query.
type request struct {
	*http.Request
	target target
	query  query
}
