package etcdserver

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/lease"
)

const (
	// maxTTL is the longest time to live, in seconds, equal to etcd's.
	maxTTL = 9_000_000_000
	// minTTL is the shortest time to live, in seconds, whatever the request. In etcd it is two election timeouts.
	minTTL = 2
)

func leaseName(id int64) string { return strconv.FormatInt(id, 16) }

// leaseNumber is the inverse of leaseName. It returns 0 if the name is not a lease name.
func leaseNumber(name string) int64 {
	id, err := strconv.ParseInt(name, 16, 64)
	if err != nil {
		return 0
	}
	return id
}

// lease returns a lease to attach keys to.
func (s *Server) lease(ctx context.Context, id int64) (*lease.Lease, error) {
	l, err := s.leases.Lease(ctx, leaseName(id))
	return l, leaseError(err)
}

func leaseError(err error) error {
	if errors.Is(err, storage.ErrNotFound) {
		return rpctypes.ErrGRPCLeaseNotFound
	}
	return err
}

// LeaseGrant implements etcd's Lease service.
func (s *Server) LeaseGrant(ctx context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	if r.TTL > maxTTL {
		return nil, rpctypes.ErrGRPCLeaseTTLTooLarge
	}
	id, ttl := r.ID, max(r.TTL, minTTL)
	for {
		if r.ID == 0 {
			id = randomID()
		}
		_, err := s.leases.Grant(ctx, leaseName(id), seconds(ttl))
		switch {
		case errors.Is(err, storage.ErrCASFailure) && r.ID == 0:
			continue
		case errors.Is(err, storage.ErrCASFailure):
			return nil, rpctypes.ErrGRPCLeaseExist
		case err != nil:
			return nil, toStatus(ctx, err)
		}
		h, err := s.header(ctx)
		return &pb.LeaseGrantResponse{Header: h, ID: id, TTL: ttl}, err
	}
}

// seconds returns a time to live, limited to the 292 years of a duration.
func seconds(n int64) time.Duration {
	return time.Duration(min(n, int64(time.Duration(1<<63-1)/time.Second))) * time.Second
}

// randomID returns a number that is most likely unused.
func randomID() int64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return int64(binary.BigEndian.Uint64(b[:])>>1) | 1
}

// LeaseRevoke implements etcd's Lease service. It deletes the keys of a lease one by one, each at its own revision.
func (s *Server) LeaseRevoke(ctx context.Context, r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	if err := s.leases.Revoke(ctx, leaseName(r.ID)); err != nil {
		return nil, toStatus(ctx, leaseError(err))
	}
	h, err := s.header(ctx)
	return &pb.LeaseRevokeResponse{Header: h}, err
}

// LeaseTimeToLive implements etcd's Lease service. A missing lease has a time to live of -1.
func (s *Server) LeaseTimeToLive(ctx context.Context, r *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error) {
	h, err := s.header(ctx)
	if err != nil {
		return nil, err
	}
	answer := &pb.LeaseTimeToLiveResponse{Header: h, ID: r.ID, TTL: -1}
	l, err := s.leases.Lease(ctx, leaseName(r.ID))
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return answer, nil
	case err != nil:
		return nil, toStatus(ctx, err)
	}
	remaining, err := s.leases.Remaining(ctx, leaseName(r.ID))
	if err != nil {
		return nil, toStatus(ctx, leaseError(err))
	}
	answer.TTL, answer.GrantedTTL = int64(remaining/time.Second), int64(l.TTL/time.Second)
	if r.Keys {
		ids, err := s.leases.AttachedIDs(ctx, l)
		if err != nil {
			return nil, toStatus(ctx, fmt.Errorf("list the keys of a lease: %w", err))
		}
		for _, id := range ids {
			answer.Keys = append(answer.Keys, keyOf(id))
		}
	}
	return answer, nil
}

// LeaseLeases implements etcd's Lease service.
func (s *Server) LeaseLeases(ctx context.Context, _ *pb.LeaseLeasesRequest) (*pb.LeaseLeasesResponse, error) {
	names, err := s.leases.Names(ctx)
	if err != nil {
		return nil, toStatus(ctx, err)
	}
	h, err := s.header(ctx)
	answer := &pb.LeaseLeasesResponse{Header: h}
	slices.Sort(names)
	for _, name := range names {
		answer.Leases = append(answer.Leases, &pb.LeaseStatus{ID: leaseNumber(name)})
	}
	return answer, err
}
