package service

import (
	"google.golang.org/grpc"

	"github.com/ashlar-dev/storage/resourcepb"
)

// WatchList sends the resources that a list of the type and tenancy returns, an end-of-snapshot event, and then every change to them that is
// visible to the caller. Without a tenancy it watches all tenancies of the type's scope. With a cursor it sends the changes after the cursor and
// no snapshot.
//
// A resource that leaves the caller's view without being deleted is sent as a deletion with an id only. The stream authorizes the caller again
// every Options.Recheck. It ends with Aborted when the store's watch ends, with OutOfRange if the cursor is older than the retained history,
// and with Unavailable when the server drains.
func (s *Server) WatchList(req *resourcepb.WatchListRequest, out grpc.ServerStreamingServer[resourcepb.WatchEvent]) error {
	st, err := s.open(out.Context(), req)
	if err != nil {
		return err
	}
	defer st.close()
	// A stream from a cursor may have no event for a long time: the header confirms that it is open.
	if err := out.SendHeader(nil); err != nil {
		return err
	}
	return send(out, func() (*resourcepb.WatchEvent, error) {
		ev, err := st.next()
		if err == nil && st.live {
			if ev, err = s.eventCache.encode(ev, st.t); err != nil {
				return nil, st.toStatus(err)
			}
		}
		return ev, err
	})
}

// Drain ends all streams, present and future, with Unavailable. Other calls are not affected. Call it before the graceful stop of a gRPC server,
// which waits for streams.
func (s *Server) Drain() { s.drain() }
