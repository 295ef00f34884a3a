package etcd

import (
	"fmt"
	"strings"
	"time"

	"github.com/ashlar-dev/storage"
)

// Options are what New needs besides a client. The zero value of each field means its default.
type Options struct {
	// Prefix is what all keys of the store begin with: "ashlar".
	Prefix string
	// Timeout bounds calls whose context has no deadline: 30 seconds.
	Timeout time.Duration
	// MaxSize is the largest resource in bytes: 1 MiB, which is also the most.
	MaxSize int
	// MaxTxnOps is the servers' --max-txn-ops: 128. It must not be less than 100.
	MaxTxnOps int
	// MaxRequestBytes is the servers' --max-request-bytes: 1.5 MiB, which is also the least.
	MaxRequestBytes int
	// Outage is how long watches wait for a cluster that is out of reach: 5 minutes.
	Outage time.Duration
	// NoCreate refuses a prefix under which there is no store, instead of making one.
	NoCreate bool
}

// The defaults of Options, and its bounds.
const (
	defaultPrefix   = "ashlar"
	maxPrefix       = 255
	defaultTimeout  = 30 * time.Second
	defaultOutage   = 5 * time.Minute
	defaultTxnOps   = 128
	minTxnOps       = 100 // a transaction of 32 operations takes up to 3 each
	defaultRequest  = 3 << 19
	dialTimeout     = 5 * time.Second
	attemptTimeout  = 8 * time.Second // a little more than a member takes to say that it has no quorum
	requestOverhead = 64 << 10        // what is left free of a request's bytes for its framing
)

func (o *Options) fill() error {
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	if strings.IndexByte(o.Prefix, 0) >= 0 {
		return fmt.Errorf("%w: the key prefix holds a NUL byte", storage.ErrInvalid)
	}
	if len(o.Prefix) > maxPrefix {
		return fmt.Errorf("%w: the key prefix has %d bytes, the most is %d", storage.ErrInvalid, len(o.Prefix), maxPrefix)
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.Outage <= 0 {
		o.Outage = defaultOutage
	}
	if o.MaxTxnOps == 0 {
		o.MaxTxnOps = defaultTxnOps
	}
	if o.MaxTxnOps < minTxnOps {
		return fmt.Errorf("%w: max-txn-ops is %d, expected %d or more", storage.ErrInvalid, o.MaxTxnOps, minTxnOps)
	}
	if o.MaxRequestBytes == 0 {
		o.MaxRequestBytes = defaultRequest
	}
	if o.MaxRequestBytes < defaultRequest {
		return fmt.Errorf("%w: max-request-bytes is %d, expected %d or more", storage.ErrInvalid, o.MaxRequestBytes, defaultRequest)
	}
	return nil
}

const chunkBytes = 4 << 20

const maxResponseBytes = 2 * chunkBytes // of one answer
