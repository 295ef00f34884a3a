package service

import (
	"google.golang.org/grpc"

	"github.com/ashlar-dev/storage/resourcepb"
)

// WatchList sends what a list of the type and tenancy would show, an end-of-snapshot event, and then every change to it that the caller
// may see. Without a tenancy it watches all of the type's scope. With a cursor it sends the changes after it, and no snapshot.
//
// A resource that leaves the caller's view without being deleted is sent as a deletion with an id only. The stream asks again from time to
// time whether the caller may still watch. It ends with Aborted when the store's watch ends, with OutOfRange when the cursor is older
// than the history kept, and with Unavailable when the server stops.
func (s *Server) WatchList(req *resourcepb.WatchListRequest, out grpc.ServerStreamingServer[resourcepb.WatchEvent]) error {
	st, err := s.open(out.Context(), req)
	if err != nil {
		return err
	}
	defer st.close()
	// A stream that goes on from a cursor may be silent for long: the header says that it stands.
	if err := out.SendHeader(nil); err != nil {
		return err
	}
	for {
		ev, err := st.next()
		if err != nil {
			return err
		}
		if st.live {
			if ev, err = s.eventCache.encode(ev); err != nil {
				return st.toStatus(err)
			}
		}
		if err := out.Send(ev); err != nil {
			return err
		}
	}
}

// Drain ends all streams, now and from now on, with Unavailable. Other calls go on. Call it before the graceful stop of a gRPC server,
// which waits for streams.
func (s *Server) Drain() { s.drain() }
