package web

import (
	"context"
	"net/http"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
)

// handler serves the HTTP mapping.
type handler struct {
	client       resourcegrpc.ResourceServiceClient
	history      resourcegrpc.HistoryServiceClient // nil without history
	identify     func(ctx context.Context, token string) (Identity, error)
	kinds        func(ctx context.Context, group, kind string, tenancy *resourcepb.Tenancy) ([]string, error) // nil: the case of a kind matters in an open registry
	storedKinds  kindCache
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

// codecOf returns the function that returns the codec of a resource in an answer for a target, whose type may have wildcards.
func (h *handler) codecOf(t target) func(*resourcepb.Resource) codec {
	return func(res *resourcepb.Resource) codec {
		if h.routes.open || t.typ.GetGroupVersion() != storage.Wildcard {
			return t.codec
		}
		return h.routes.codecs.of(res.GetId().GetType())
	}
}
