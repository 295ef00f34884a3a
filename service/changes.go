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

// Changes sends the changes between two revisions, in order, to what a list of the type and tenancy would show the caller, and ends. What
// comes into the caller's view, or leaves it, without being created or deleted has nothing before, or now. The stream asks again from time
// to time whether the caller may still see what it sees, and ends with Unavailable when the server stops.
func (s *Server) Changes(req *resourcepb.ChangesRequest, out grpc.ServerStreamingServer[resourcepb.Change]) error {
	c, err := s.changes(out.Context(), req)
	if err != nil {
		return err
	}
	defer c.close()
	for {
		change, err := c.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := out.Send(change); err != nil {
			return err
		}
	}
}

// changes is one call of Changes. It is for one goroutine.
type changes struct {
	view     *historyView
	filter   *ranges.Filter
	name     string // "" for all
	until    int64
	follower history.Follower

	ctx  context.Context // of the call; over when the server drains, too
	free func()          // ends ctx

	ready    []*resourcepb.Change
	complete bool // no more than what is ready
}

// changes begins a call of Changes.
func (s *Server) changes(ctx context.Context, req *resourcepb.ChangesRequest) (c *changes, err error) {
	switch {
	case req.GetAfter() < 1:
		return nil, invalid("after invalid: a revision is a number from 1 on, got %d", req.GetAfter())
	case req.GetUntil() != 0 && req.GetUntil() < req.GetAfter():
		return nil, invalid("until invalid: expected %d, which is after, or more, got %d", req.GetAfter(), req.GetUntil())
	}
	if req.GetName() != "" {
		if err := checkName("name", req.GetName()); err != nil {
			return nil, err
		}
	}
	c = &changes{name: req.GetName(), until: req.GetUntil()}
	var end context.CancelCauseFunc
	c.ctx, end = context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.draining, func() { end(errDraining) })
	free := func() { stop(); end(nil) }
	c.free = free
	opened := false
	defer func() {
		if !opened { // by an error, or by a hook that panicked; what is returned is nil by now
			free()
		}
	}()
	if c.view, err = s.openHistoryView(c.ctx, req.GetType(), req.GetTenancy(), ""); err != nil {
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

// follow begins to follow the changes after a revision.
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
	c.filter = c.view.filter(c.name)
	if c.follower, err = h.Follow(c.ctx, c.filter.Span(), after); err != nil {
		return err
	}
	// The newest revision may be of a change that nobody here sees: the bookmark says when it has been reached.
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

// fetch takes changes from the store, commit by commit.
func (c *changes) fetch() error {
	if c.view.server.draining.Err() != nil {
		return errDraining
	}
	if !time.Now().Before(c.view.recheckAt) {
		if err := c.view.authenticate(c.ctx); err != nil {
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
			break // it came after the last one that was asked for
		}
		if err := c.addCommit(all[:end]); err != nil {
			return err
		}
		all = all[end:]
	}
	c.complete = upTo >= c.until
	return nil
}

// addCommit readies what the caller may see of the changes of a addCommit.
func (c *changes) addCommit(all []history.Change) error {
	var last *resourcepb.Change
	for i := range all {
		seen, err := c.visibleChange(&all[i])
		if err != nil {
			return err
		}
		if seen == nil {
			continue
		}
		if last != nil {
			last.More = true
		}
		c.ready, last = append(c.ready, seen), seen
	}
	return nil
}

// visibleChange returns a change as the caller may see it, nil for nothing.
func (c *changes) visibleChange(change *history.Change) (*resourcepb.Change, error) {
	either := change.Now
	if either == nil {
		either = change.Before
	}
	id := either.Resource.GetId()
	if !c.filter.Match(id) || c.name != "" && c.name != id.GetName() {
		return nil, nil
	}
	now, err := c.view.visibleRecord(c.ctx, change.Now)
	if err != nil {
		return nil, err
	}
	before, err := c.view.visibleRecord(c.ctx, change.Before)
	if err != nil || now == nil && before == nil {
		return nil, err
	}
	return &resourcepb.Change{Revision: change.Revision, Now: now, Before: before}, nil
}

// toStatus returns an error as the caller is toStatus of it.
func (c *changes) toStatus(err error) error {
	if errors.Is(context.Cause(c.ctx), errDraining) {
		return errDraining
	}
	return c.view.server.toStatus(c.ctx, "read the changes", err)
}
