package dynamofake

import (
	"strings"
	"time"
)

// Advance sets the server's clock forward, or back: either time passes, or the clocks of its clients are wrong.
func (s *Server) Advance(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead += by
}

// SetLag has eventually consistent reads show states this many writes old.
func (s *Server) SetLag(states int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table.lag = states
}

// SetSchema changes what DescribeTable says about the table.
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

// Expire removes an item as DynamoDB does when its time is over.
func (s *Server) Expire(class byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, it := range s.table.items {
		if _, rest, ok := strings.Cut(at.pk, "\x00"); ok && rest[0] == class && it["ttl"] != nil {
			s.table.apply(&write{Key: item{"pk": it["pk"], "sk": it["sk"]}}, put)
		}
	}
}

// SetQueryPage changes how many items an answer of Query has at most, from 7.
func (s *Server) SetQueryPage(items int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table.page = items
}

// SetTimeToLive says whether DescribeTable's table has its time-to-live switched on.
func (s *Server) SetTimeToLive(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table.noTTL = !on
}

// TimeToLive reports whether it is switched on.
func (s *Server) TimeToLive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.table.noTTL
}

// Roll closes every open shard and goes on in one child of each, as happens every few hours.
func (s *Server) Roll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sh := range s.stream.open() {
		s.stream.divide(sh, 1, false)
	}
}

// Split closes the oldest open shard and goes on in two children. With hidden the children are in no listing before Show.
func (s *Server) Split(hidden bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream.divide(s.stream.open()[0], 2, hidden)
}

// SetEmptyPages has each answer of GetRecords that holds records come after n that hold none, as AWS says is normal.
func (s *Server) SetEmptyPages(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream.empty = n
}

// SetOmissions has DescribeStream leave out the shards for which omit is true, counted from 0 in the order of their making; nil:
// none.
func (s *Server) SetOmissions(omit func(shard int, closed bool) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream.omits = omit
}

// SetReaders has GetRecords refuse all but the first n clients that read the same shard within a second. AWS has room for two.
func (s *Server) SetReaders(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream.limit = n
}

// Shards returns how many shards the stream has had.
func (s *Server) Shards() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.stream.shards)
}

// Show lists all shards.
func (s *Server) Show() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sh := range s.stream.shards {
		sh.hidden = false
	}
}

// SetShards has the stream begin anew with a number of shards. Call it before anything is written.
func (s *Server) SetShards(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream = newStream(1, n)
}

// ExpireIterators has all iterators expire.
func (s *Server) ExpireIterators() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream.epoch++
}

// Trim forgets all records that are there, as DynamoDB does after a day.
func (s *Server) Trim() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sh := range s.stream.shards {
		sh.trimmed = len(sh.records)
	}
}

// Disable switches the stream off; Enable switches it on again, which makes another one.
func (s *Server) Disable() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream.enabled = false
	s.old[s.stream.arn] = s.stream
	for _, sh := range s.stream.open() {
		sh.closed = true
	}
}

// Enable switches a disabled stream on.
func (s *Server) Enable() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream = newStream(len(s.old)+1, 1)
}

// SetFaults has f decide what happens to each request. f is called under a lock, one request at a time; nil: nothing happens.
func (s *Server) SetFaults(f func(op string) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// SetGate has f called when a request has arrived in full and before it is looked at, without a lock. f may wait: the request is
// carried out when f returns, also if its client has given up meanwhile.
func (s *Server) SetGate(f func(op string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate = f
}

// Calls returns how often an operation was asked for.
func (s *Server) Calls(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[op]
}
