package service

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/ranges"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Changes sends, in order, every change between two revisions to a resource that a list of the type and tenancy would show the
// caller. Then it ends. If a change brings a resource into the caller's view without creating it, before is nil; if a change
// removes it from the view without deleting it, now is nil. The stream authorizes the caller again every Options.Recheck, and ends
// with Unavailable when the server drains.
func (s *Server) Changes(req *resourcepb.ChangesRequest, out grpc.ServerStreamingServer[resourcepb.Change]) error {
	c, err := s.changes(out.Context(), req)
	if err != nil {
		return err
	}
	defer c.close()
	if err := send(out, c.next); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// changes is one Changes call. It must not be used concurrently.
type changes struct {
	*view
	filter   *ranges.Filter
	resource string // the name of one resource; "" for all
	until    int64
	follower history.Follower

	ctx  context.Context // of the call; canceled when the server drains, too
	free func()          // cancels ctx

	ready    []*resourcepb.Change
	complete bool // no changes follow the ready ones
}

// changes opens a Changes call.
func (s *Server) changes(ctx context.Context, req *resourcepb.ChangesRequest) (*changes, error) {
	switch {
	case req.GetAfter() < 1:
		return nil, invalid("after invalid: expected a revision, which is 1 or more, got %d", req.GetAfter())
	case req.GetUntil() != 0 && req.GetUntil() < req.GetAfter():
		return nil, refusal("until invalid: expected %d, which is after, or more, got %d", req.GetAfter(), req.GetUntil())
	}
	if req.GetName() != "" {
		if err := checkName("name", req.GetName()); err != nil {
			return nil, err
		}
	}
	ctx, free := s.streamContext(ctx)
	c := &changes{resource: req.GetName(), until: req.GetUntil(), ctx: ctx, free: free}
	opened := false
	defer func() {
		if !opened { // because of an error or a panic of a hook
			free()
		}
	}()
	var err error
	if c.view, err = s.openView(ctx, req.GetType(), req.GetTenancy(), ""); err != nil {
		return nil, err
	}
	h, err := s.historian()
	if err != nil {
		return nil, err
	}
	if err := c.follow(h, req.GetAfter()); err != nil {
		return nil, c.toStatus(err)
	}
	opened = true
	return c, nil
}

// follow opens the follower of the changes after a revision.
func (c *changes) follow(h history.Historian, after int64) error {
	_, newest, err := h.Revisions(c.ctx)
	switch {
	case err != nil:
		return err
	case c.until == 0:
		c.until = newest
	case c.until > newest:
		return storage.ErrFutureRevision
	}
	c.filter = c.keys(c.resource)
	if c.follower, err = h.Follow(c.ctx, c.filter.Range(), after); err != nil {
		return err
	}
	// The change of the newest revision may be outside the filter: the bookmark reports when the follower has passed it.
	if err := c.follower.Bookmark(c.ctx); err != nil {
		c.follower.Close()
		return err
	}
	c.complete = after >= c.until
	return nil
}

// close ends the call.
func (c *changes) close() {
	c.free()
	c.follower.Close()
}

// next returns the next change, and io.EOF after the last one.
func (c *changes) next() (*resourcepb.Change, error) {
	for len(c.ready) == 0 {
		if c.complete {
			return nil, io.EOF
		}
		if err := c.fetch(); err != nil {
			return nil, c.toStatus(err)
		}
	}
	first := c.ready[0]
	c.ready = c.ready[1:]
	return first, nil
}

// fetch reads changes from the store, in whole commits.
func (c *changes) fetch() error {
	if c.server.draining.Err() != nil {
		return errDraining
	}
	if !time.Now().Before(c.recheckAt) {
		if err := c.authenticate(c.ctx); err != nil {
			return err
		}
	}
	all, upTo, err := c.follower.Next(c.ctx)
	if err != nil {
		return err
	}
	for len(all) > 0 {
		end := 1
		for end < len(all) && all[end-1].More {
			end++
		}
		if all[0].Revision > c.until {
			break
		}
		for all[end-1].Revision > c.until { // a commit may have several revisions
			end--
		}
		if err := c.addCommit(all[:end]); err != nil {
			return err
		}
		all = all[end:]
	}
	c.complete = upTo >= c.until
	return nil
}

// addCommit appends the visible changes of a commit to ready.
func (c *changes) addCommit(all []history.Change) error {
	var last *resourcepb.Change
	for i := range all {
		visible, err := c.visibleChange(&all[i])
		if err != nil {
			return err
		}
		if visible == nil {
			continue
		}
		if last != nil {
			last.More = true
		}
		c.ready, last = append(c.ready, visible), visible
	}
	return nil
}

// visibleChange returns a change as the caller may see it, or nil if it is hidden.
func (c *changes) visibleChange(change *history.Change) (*resourcepb.Change, error) {
	either := change.New
	if either == nil {
		either = change.Old
	}
	id := either.Resource.GetId()
	if !c.filter.Match(id) || c.resource != "" && c.resource != id.GetName() {
		return nil, nil
	}
	now, err := c.record(c.ctx, change.New)
	if err != nil {
		return nil, err
	}
	before, err := c.recordBefore(c.ctx, change.Old)
	if err != nil || now == nil && before == nil {
		return nil, err
	}
	return &resourcepb.Change{Revision: change.Revision, Now: now, Before: before}, nil
}

// toStatus converts an error to a status error.
func (c *changes) toStatus(err error) error {
	return c.server.toStatus(c.ctx, "read the changes", c.hideDamaged(c.ctx, err))
}
