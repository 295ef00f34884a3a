package dynamofake

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"
)

// stream is a tree of shards for each partition of the table.
//
// A partition is a range of positions, as in AWS: by the hash of the partition key, and inside an item collection by sort key. Splits
// inside a collection: "Scaling DynamoDB: How partitions, hot keys, and split for heat impact performance" (AWS Database Blog), part 2.
// The split point follows observed keys: "Amazon DynamoDB" (USENIX ATC 2022), section 4.4.
type stream struct {
	arn       string
	enabled   bool
	shards    []*shard // in order of creation
	number    int      // of the last record
	epoch     int      // of iterators; those of earlier ones have expired
	page      int      // maximum number of records in an answer
	shardPage int      // maximum number of shards in an answer
	empty     int      // number of empty answers before each answer with records
	omits     func(shard int, closed bool) bool
	readers   map[int]map[string]time.Time // by shard and client, the time of the last read
	limit     int                          // maximum number of readers of a shard
	noAccess  []string                     // clients that may not read
}

type shard struct {
	id        string
	parent    *shard
	from, to  string // range of positions; no to: the end
	records   []object
	positions []string // of the records
	trimCount int
	closed    bool
	hidden    bool // omitted by DescribeStream
}

func newStream(generation, roots int) *stream {
	st := &stream{
		arn:     fmt.Sprintf("arn:aws:dynamodb:eu-north-1:1:table/%s/stream/%d", Table, generation),
		enabled: true, page: 3, shardPage: 10, readers: map[int]map[string]time.Time{},
	}
	from := ""
	for i := range roots {
		to := ""
		if i < roots-1 {
			to = string(binary.BigEndian.AppendUint32(nil, uint32((i+1)*(1<<32/roots))))
		}
		st.newShard(nil, from, to)
		from = to
	}
	return st
}

func (st *stream) newShard(parent *shard, from, to string) *shard {
	sh := &shard{id: fmt.Sprintf("shardId-%08d", len(st.shards)+1), parent: parent, from: from, to: to}
	st.shards = append(st.shards, sh)
	return sh
}

// positionOf returns the position of an item: the hash of its partition key, the partition key, the sort key.
func positionOf(at address) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(at.pk))
	b := h.Sum(nil)
	// FNV hashes of similar short keys are close together.
	b = binary.BigEndian.AppendUint32(nil, binary.BigEndian.Uint32(b)*2654435769)
	b = binary.BigEndian.AppendUint16(b, uint16(len(at.pk)))
	return string(b) + at.pk + at.sk
}

// openAt returns the open shard of a position.
func (st *stream) openAt(position string) *shard {
	for _, sh := range slices.Backward(st.shards) {
		if !sh.closed && position >= sh.from && (sh.to == "" || position < sh.to) {
			return sh
		}
	}
	panic("the partitions have a gap")
}

// record appends to the open shard of an item.
func (st *stream) record(now time.Time, at address, before, after item) {
	if !st.enabled {
		return
	}
	position := positionOf(at)
	sh := st.openAt(position)
	st.number++
	change := object{
		"Keys":           item{"pk": either(after, before)["pk"], "sk": either(after, before)["sk"]},
		"SequenceNumber": fmt.Sprintf("%021d", 100*st.number), "StreamViewType": "NEW_AND_OLD_IMAGES", "SizeBytes": 1,
		"ApproximateCreationDateTime": now.Unix(),
	}
	// The name is sometimes wrong on purpose: AWS distinguishes its own removals from REMOVE only by other fields.
	name := "MODIFY"
	if before != nil {
		change["OldImage"] = before
	}
	if after != nil {
		change["NewImage"] = after
	} else {
		name = "REMOVE"
	}
	sh.positions = append(sh.positions, position)
	sh.records = append(sh.records, object{"eventID": strconv.Itoa(st.number), "eventName": name, "dynamodb": change})
}

func either(a, b item) item {
	if a != nil {
		return a
	}
	return b
}

// open returns the open shards.
func (st *stream) open() []*shard {
	var open []*shard
	for _, sh := range st.shards {
		if !sh.closed {
			open = append(open, sh)
		}
	}
	return open
}

// roll closes a shard and continues in one child.
func (st *stream) roll(sh *shard) {
	sh.closed = true
	st.newShard(sh, sh.from, sh.to)
}

// divide closes a shard and continues in two children.
func (st *stream) divide(sh *shard, border string, hidden bool) {
	sh.closed = true
	st.newShard(sh, sh.from, border).hidden = hidden
	st.newShard(sh, border, sh.to).hidden = hidden
}

// border returns the position where a split divides the shard: the median of its records' positions, or the middle of its hashes.
func (sh *shard) border() string {
	positions := slices.Clone(sh.positions)
	slices.Sort(positions)
	if positions = slices.Compact(positions); len(positions) > 1 {
		return positions[len(positions)/2]
	}
	hash := func(position string, none uint64) uint64 {
		if len(position) < 4 {
			return none
		}
		return uint64(binary.BigEndian.Uint32([]byte(position)))
	}
	middle := (hash(sh.from, 0) + hash(sh.to, 1<<32)) / 2
	return max(sh.from+"\x00", string(binary.BigEndian.AppendUint32(nil, uint32(middle))))
}

func (st *stream) describe(in *request) (any, error) {
	d := object{"StreamArn": st.arn, "StreamStatus": "ENABLED", "StreamViewType": "NEW_AND_OLD_IMAGES"}
	if !st.enabled {
		d["StreamStatus"] = "DISABLED"
	}
	shards := []object{}
	for i, sh := range st.shards {
		if sh.hidden || sh.id <= in.ExclusiveStartShardId || st.omits != nil && st.omits(i, sh.closed) {
			continue
		}
		if len(shards) == st.shardPage {
			d["LastEvaluatedShardId"] = shards[st.shardPage-1]["ShardId"]
			break
		}
		numbers := object{"StartingSequenceNumber": "100"}
		if sh.closed {
			numbers["EndingSequenceNumber"] = fmt.Sprintf("%021d", 100*st.number)
		}
		listed := object{"ShardId": sh.id, "SequenceNumberRange": numbers}
		if sh.parent != nil {
			listed["ParentShardId"] = sh.parent.id
		}
		shards = append(shards, listed)
	}
	d["Shards"] = shards
	return object{"StreamDescription": d}, nil
}

func (st *stream) getShardIterator(in *request) (any, error) {
	i := slices.IndexFunc(st.shards, func(sh *shard) bool { return sh.id == in.ShardId })
	if i < 0 {
		return nil, refuse("ResourceNotFoundException", "Requested resource not found: Shard does not exist")
	}
	sh := st.shards[i]
	at := sh.trimCount
	switch in.ShardIteratorType {
	case "LATEST":
		at = len(sh.records)
	case "AFTER_SEQUENCE_NUMBER":
		at = slices.IndexFunc(sh.records, func(r object) bool { return r["dynamodb"].(object)["SequenceNumber"] == in.SequenceNumber })
		if at < 0 {
			return nil, refuse("ValidationException", "Invalid SequenceNumber")
		}
		if at++; at < sh.trimCount {
			return nil, refuse("TrimmedDataAccessException", "The operation attempted to read past the oldest stream record in a shard")
		}
	}
	return object{"ShardIterator": st.iterator(i, at, st.empty)}, nil
}

func (st *stream) iterator(shard, at, empty int) string {
	return strings.Join([]string{st.arn, strconv.Itoa(shard), strconv.Itoa(at), strconv.Itoa(st.epoch), strconv.Itoa(empty)}, "|")
}

func (st *stream) getRecords(in *request) (any, error) {
	parts := strings.Split(in.ShardIterator, "|")
	if len(parts) != 5 {
		return nil, refuse("ValidationException", "Invalid ShardIterator")
	}
	i, _ := strconv.Atoi(parts[1])
	at, _ := strconv.Atoi(parts[2])
	epoch, _ := strconv.Atoi(parts[3])
	empty, _ := strconv.Atoi(parts[4])
	sh := st.shards[i]
	if err := st.admit(i, in.client); err != nil {
		return nil, err
	}
	if epoch != st.epoch {
		return nil, refuse("ExpiredIteratorException", "Iterator expired")
	}
	if at < sh.trimCount {
		return nil, refuse("TrimmedDataAccessException", "The operation attempted to read past the oldest stream record in a shard")
	}
	end := min(at+st.page, len(sh.records))
	if empty > 0 && end > at {
		return object{"Records": []object{}, "NextShardIterator": st.iterator(i, at, empty-1)}, nil
	}
	out := object{"Records": append([]object{}, sh.records[at:end]...)}
	if !sh.closed || end < len(sh.records) {
		out["NextShardIterator"] = st.iterator(i, end, st.empty)
	}
	return out, nil
}

// admit gives a client one of the reader slots of a shard.
func (st *stream) admit(shard int, client string) error {
	if slices.Contains(st.noAccess, client) {
		return refuse("LimitExceededException", "other clients read the shard")
	}
	if st.limit == 0 {
		return nil
	}
	readers := st.readers[shard]
	if readers == nil {
		readers = map[string]time.Time{}
		st.readers[shard] = readers
	}
	for name, last := range readers {
		if time.Since(last) > time.Second {
			delete(readers, name)
		}
	}
	if _, has := readers[client]; !has && len(readers) >= st.limit {
		return refuse("LimitExceededException", "%d clients read the shard", len(readers))
	}
	readers[client] = time.Now()
	return nil
}
