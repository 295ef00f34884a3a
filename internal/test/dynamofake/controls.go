package dynamofake

import (
	"maps"
	"strings"
	"time"
)

// Advance sets the server's clock forward, or back: time passes, or the clocks of its clients are wrong.
func (s *Server) Advance(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clockSkew += by
}

// SetLag makes eventually consistent reads return states that are this many writes old.
func (s *Server) SetLag(states int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table.lag = states
}

// SetSchema changes the table's description in DescribeTable.
func (s *Server) SetSchema(hash, sort, kind, view string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table.hash, s.table.sort, s.table.kind, s.table.view = hash, sort, kind, view
}

// Items returns the number of items whose partition key is of a class, the byte after the prefix and its NUL.
func (s *Server) Items(class byte) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for at := range s.table.items {
		if _, rest, ok := strings.Cut(at.pk, "\x00"); ok && rest[0] == class {
			n++
		}
	}
	return n
}

// Expire removes an item as DynamoDB does after its time-to-live.
func (s *Server) Expire(class byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, it := range s.table.items {
		if _, rest, ok := strings.Cut(at.pk, "\x00"); ok && rest[0] == class && it["ttl"] != nil {
			s.table.apply(&write{Key: item{"pk": it["pk"], "sk": it["sk"]}}, put)
		}
	}
}

// ForgetTokens makes the table ignore the tokens of transactions, as DynamoDB does after ten minutes.
func (s *Server) ForgetTokens() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table.forgetful = true
}

// SetQueryPage changes the maximum number of items in an answer of Query. The default is 7.
func (s *Server) SetQueryPage(items int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table.page = items
}

// SetSizeLimits changes the limits of the bytes of an item, and of the items of a transaction. The defaults are DynamoDB's: 400 KiB and 4 MiB.
func (s *Server) SetSizeLimits(item, transaction int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table.itemBytes, s.table.transactBytes = item, transaction
}

// SetTimeToLive sets whether DescribeTable reports an enabled time-to-live.
func (s *Server) SetTimeToLive(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table.noTTL = !on
}

// SetTimeToLiveAttribute sets the attribute of the enabled time-to-live.
func (s *Server) SetTimeToLiveAttribute(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table.ttlAttribute = name
}

// SetReplicas makes DescribeTable report replicas of the table in these regions.
func (s *Server) SetReplicas(regions ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table.replicas = nil
	for _, region := range regions {
		s.table.replicas = append(s.table.replicas, object{"RegionName": region, "ReplicaStatus": "ACTIVE"})
	}
}

// TimeToLive reports whether the time-to-live is enabled.
func (s *Server) TimeToLive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.table.noTTL
}

// Roll closes every open shard and continues in one child of each, as AWS does every few hours.
func (s *Server) Roll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sh := range s.stream.open() {
		s.stream.roll(sh)
	}
}

// RollOldest does the same to the oldest open shard.
func (s *Server) RollOldest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream.roll(s.stream.open()[0])
}

// OpenShards returns the number of open shards.
func (s *Server) OpenShards() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.stream.open())
}

// Split splits the partition of the oldest open shard. With hidden, no listing before Show contains the two new shards.
func (s *Server) Split(hidden bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sh := s.stream.open()[0]
	s.stream.divide(sh, sh.border(), hidden)
}

// SplitAt splits the partition of an item. The item and those behind it are in the second of the new partitions.
func (s *Server) SplitAt(pk, sk string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	position := positionOf(address{pk, sk})
	s.stream.divide(s.stream.openAt(position), position, false)
}

// SetListedShards changes the maximum number of shards in an answer of DescribeStream. The default is 10; in AWS it is 100.
func (s *Server) SetListedShards(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream.shardPage = n
}

// SetEmptyPages makes n empty answers precede each answer of GetRecords with records, which AWS documents as normal.
func (s *Server) SetEmptyPages(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream.empty = n
}

// SetOmissions makes DescribeStream omit a shard if omit returns true for it; shards are counted from 0 in the order of their
// creation. With nil it omits none.
func (s *Server) SetOmissions(omit func(shard int, closed bool) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream.omits = omit
}

// SetRecordPage changes the maximum number of records in an answer of GetRecords. The default is 3; in AWS it is 1,000.
func (s *Server) SetRecordPage(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream.page = n
}

// SetReaders makes GetRecords refuse all but the first n clients that read the same shard within a second. AWS allows two.
func (s *Server) SetReaders(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream.limit = n
}

// SetRefused makes GetRecords refuse these clients, as if others read the shards.
func (s *Server) SetRefused(clients ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream.noAccess = clients
}

// Shards returns the number of shards that the stream has had.
func (s *Server) Shards() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.stream.shards)
}

// Show makes listings contain all shards.
func (s *Server) Show() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sh := range s.stream.shards {
		sh.hidden = false
	}
}

// SetShards restarts the stream with a number of shards. Call it before the first write.
func (s *Server) SetShards(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream = newStream(1, n)
}

// ExpireIterators expires all iterators.
func (s *Server) ExpireIterators() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream.epoch++
}

// Trim deletes all present records, as DynamoDB does after a day.
func (s *Server) Trim() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sh := range s.stream.shards {
		sh.trimCount = len(sh.records)
	}
}

// Disable disables the stream. Enable then creates a new one.
func (s *Server) Disable() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream.enabled = false
	s.old[s.stream.arn] = s.stream
	for _, sh := range s.stream.open() {
		sh.closed = true
	}
}

// Backup is the content of a table at one moment.
type Backup struct{ items map[address]item }

// Backup returns a backup of the table.
func (s *Server) Backup() Backup {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Backup{maps.Clone(s.table.items)}
}

// Restore deletes the table and restores a backup under its name, with a new stream.
func (s *Server) Restore(b Backup) {
	s.Disable()
	s.Enable()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table.items, s.table.versions = maps.Clone(b.items), versions{}
	for at := range b.items {
		s.table.versions.add(at, nil)
	}
}

// Enable enables a disabled stream.
func (s *Server) Enable() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream = newStream(len(s.old)+1, 1)
}

// SetFaults makes f decide the fault of each request. f is called under a lock, one request at a time. With nil there are no
// faults.
func (s *Server) SetFaults(f func(op string) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// SetGate makes f run when a request has been received completely, before it is processed, without a lock. f may block: the request
// is processed when f returns, even if its client has given up meanwhile.
func (s *Server) SetGate(f func(op string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate = f
}

// Calls returns the number of requests of an operation.
func (s *Server) Calls(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[op]
}

// Grants returns the number of requests of an operation that were not refused.
func (s *Server) Grants(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.grants[op]
}

// HoldTransaction holds the next transaction with a condition check on an item of a class.
func (s *Server) HoldTransaction(class byte) *Prepared {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holder.held = &Prepared{class: class, readyCh: make(chan struct{}), commitCh: make(chan struct{})}
	return s.holder.held
}

// Conflicts returns the number of requests that the held transaction has made conflict.
func (s *Server) Conflicts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holder.conflicts
}

// SetWriteLimit makes each partition key accept this many write units more, such as those of a second on AWS, and then throttles its writes.
// 0 removes the limit.
func (s *Server) SetWriteLimit(units int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heat.limit, s.heat.units = units, map[string]int{}
}

// Throttles returns the number of requests that were refused because of the limit of SetWriteLimit.
func (s *Server) Throttles() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heat.throttles
}
