// Package relay lets any number of processes watch a DynamoDB table, although DynamoDB allows two readers of its stream. A program imports
// it for its side effect, and opens the store with watch=relay:
//
//	import _ "github.com/ashlar-dev/storage/dynamodb/relay"
//
//	dynamodb://table?watch=relay                                      // a subscriber
//	dynamodb://table?watch=relay&relay-listen=10.0.0.7:7400           // a subscriber that may become a relay
//
// # Election
//
// Two locks of package lease, in a store of their own in the same table, permit two processes to read the stream:
//
//	candidate ── publishes its address ──► another process calls Probe there ──► campaign ──► relay ── publishes its address again
//
// A process that no other process has reached is never a relay for others. If it finds no relay at all, it holds one of the locks
// without publishing its address, reads for itself, and retires when there is a relay. A relay that no other process has reached for a minute
// retires, too.
//
// # Trust
//
// A relay publishes in the table the hash of its TLS key and a random token. A process that may read the table may subscribe, and only a process
// that may write to it can be a relay. A subscriber compares the store's id and the ARN of the stream, which it reads from DynamoDB itself,
// with the relay's, so a relay of a table that was restored under the same name is refused.
//
// # Failures
//
// Subscribers own their positions, and each relay continues any position; see package streams. A subscriber that has received nothing for a third of
// relay-ttl subscribes at the other relay. If there is none, its watches end after the outage of the URL.
package relay
