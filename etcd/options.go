package etcd

import (
	"fmt"
	"strings"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/telemetry"
)

// Options configures New. The zero value of each field selects its default.
type Options struct {
	// Prefix is the prefix of all keys of the store. The default is "ashlar".
	Prefix string
	// Timeout bounds calls whose context has no deadline. The default is 30 seconds.
	Timeout time.Duration
	// MaxSize is the maximum size of a resource in bytes. The default and the upper limit is 1 MiB.
	MaxSize int
	// MaxTxnOps is the servers' --max-txn-ops. The default is 128, the minimum 100.
	MaxTxnOps int
	// MaxRequestBytes is the servers' --max-request-bytes. The default and the minimum is 1.5 MiB.
	MaxRequestBytes int
	// Outage is how long watches wait for an unreachable cluster. The default is 5 minutes.
	Outage time.Duration
	// NoCreate makes New fail if there is no store under the prefix. By default New creates one.
	NoCreate bool
	// Telemetry receives what the store reports.
	Telemetry telemetry.Options
}

// The defaults and limits of Options.
const (
	defaultPrefix   = "ashlar"
	maxPrefix       = 255
	defaultTimeout  = 30 * time.Second
	defaultOutage   = 5 * time.Minute
	defaultTxnOps   = 128
	minTxnOps       = 100 // a transaction of 32 operations takes up to 3 each
	defaultRequest  = 3 << 19
	dialTimeout     = 5 * time.Second
	attemptTimeout  = 8 * time.Second // a little more than a member without quorum takes to return an error
	requestOverhead = 64 << 10        // bytes of a request reserved for its framing
)

func (o *Options) fill() error {
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	if strings.IndexByte(o.Prefix, 0) >= 0 {
		return fmt.Errorf("%w: the key prefix contains a NUL byte", storage.ErrInvalid)
	}
	if len(o.Prefix) > maxPrefix {
		return fmt.Errorf("%w: the key prefix has %d bytes, the maximum is %d", storage.ErrInvalid, len(o.Prefix), maxPrefix)
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

const (
	chunkBytes       = 4 << 20 // the intended size of a chunk of a listing
	maxResponseBytes = 2 * chunkBytes
	opOverhead       = 64 // the maximum size of the framing of an operation
)
