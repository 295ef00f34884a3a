package service

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/oklog/ulid/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// WriteStatus replaces one status of a resource; the generation does not change. Without a version it applies to whatever version is stored, so that
// writers of different statuses and of the content do not conflict. A resource with a deletion mark accepts statuses.
func (s *Server) WriteStatus(ctx context.Context, req *resourcepb.WriteStatusRequest) (_ *resourcepb.WriteStatusResponse, err error) {
	ctx, audited := s.audit(ctx, "WriteStatus", req.GetId())
	defer audited(&err)
	if err := checkStatus(req); err != nil {
		return nil, err
	}
	if isTombstone(req.GetId().GetType()) {
		return nil, invalid("a tombstone has no status")
	}
	in, err := s.admit(ctx, req.GetId())
	if err != nil {
		return nil, err
	}
	written := proto.CloneOf(req.GetStatus())
	var stored *resourcepb.Resource
	err = retryConflicts(ctx, req.GetVersion() != "", func(consistency storage.ReadConsistency) error {
		res, err := s.readAs(ctx, consistency, in)
		mismatch := storage.GroupVersionMismatchError{}
		current := res
		switch {
		case errors.As(err, &mismatch):
			current = mismatch.Stored
		case errors.Is(err, storage.ErrNotFound):
			current = &resourcepb.Resource{Id: in.id}
		case err != nil:
			return err
		}
		if denied := s.authStatus(ctx, in.t.MayWrite(in.caller, current)); denied != nil {
			return denied // a caller that may not write the resource does not learn that it is absent
		}
		if missing := s.checkExists(ctx, in.id.GetTenancy(), codes.NotFound); missing != nil {
			return missing
		}
		if err != nil {
			return decisionError{err}
		}
		mutationOf(ctx).Before = copyOf(res)
		if req.GetVersion() != "" && req.GetVersion() != res.GetVersion() {
			return decisionError{storage.ErrCASFailure}
		}
		written.UpdatedAt = timestamppb.Now()
		res.Author = s.author(in.caller)
		res.Status = maps.Clone(res.GetStatus())
		if res.Status == nil {
			res.Status = map[string]*resourcepb.Status{}
		}
		res.Status[req.GetKey()] = written
		stored, err = s.store(ctx, res)
		return err
	})
	if err != nil {
		return nil, s.toStatus(ctx, "write the status", err)
	}
	request := &resourcepb.Resource{Status: map[string]*resourcepb.Status{req.GetKey(): written}}
	return &resourcepb.WriteStatusResponse{Resource: s.answer(ctx, in, stored, request)}, nil
}

// checkStatus checks the shape of a request to write a status.
func checkStatus(req *resourcepb.WriteStatusRequest) error {
	if err := checkID("id", req.GetId()); err != nil {
		return err
	}
	switch {
	case req.GetId().GetUid() == "":
		return invalid("id.uid is required")
	case req.GetKey() == "":
		return invalid("key is required")
	case req.GetStatus() == nil:
		return invalid("status is required")
	case req.GetStatus().GetObservedGeneration() == "":
		return invalid("status.observed_generation is required")
	case req.GetStatus().GetUpdatedAt() != nil:
		return invalid("status.updated_at is automatically set and cannot be provided")
	}
	if _, err := ulid.ParseStrict(req.GetStatus().GetObservedGeneration()); err != nil {
		return invalid("status.observed_generation invalid: expected a ULID, got %.80q", req.GetStatus().GetObservedGeneration())
	}
	for i, c := range req.GetStatus().GetConditions() {
		field := fmt.Sprintf("status.conditions[%d]", i)
		if c.GetType() == "" {
			return invalid("%s.type is required", field)
		}
		if ref := c.GetResource(); ref != nil {
			if err := checkReference(field+".resource", ref); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkReference checks the resource reference of a condition, which may have any scope.
func checkReference(field string, ref *resourcepb.Reference) error {
	switch {
	case ref.GetType() == nil:
		return invalid("%s.type is required", field)
	case ref.GetTenancy() == nil:
		return invalid("%s.tenancy is required", field)
	case ref.GetTenancy().GetPartition() == "" && ref.GetTenancy().GetNamespace() != "":
		return invalid("%s.tenancy.partition is required", field)
	}
	if err := checkTenancy(field+".tenancy", ref.GetTenancy(), false); err != nil {
		return err
	}
	return checkName(field+".name", ref.GetName())
}
