package dynamofake

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"
)

// stream is a tree of shards for each partition of the table.
type stream struct {
	arn     string
	enabled bool
	roots   []*shard
	shards  []*shard // in order of creation
	number  int      // of the last record
	epoch   int      // of iterators; those of earlier ones have expired
	page    int      // maximum number of records in an answer
	empty   int      // number of empty answers before each answer with records
	omits   func(shard int, closed bool) bool
	readers map[int]map[string]time.Time // by shard and client, the time of the last read
	limit   int                          // maximum number of readers of a shard
}

type shard struct {
	id       string
	parent   *shard
	children []*shard
	records  []object
	trimmed  int
	closed   bool
	hidden   bool // omitted by DescribeStream
}

func newStream(generation, roots int) *stream {
	st := &stream{arn: fmt.Sprintf("arn:aws:dynamodb:eu-north-1:1:table/%s/stream/%d", Table, generation), enabled: true, page: 3, readers: map[int]map[string]time.Time{}}
	for range roots {
		st.roots = append(st.roots, st.newShard(nil))
	}
	return st
}

func (st *stream) newShard(parent *shard) *shard {
	sh := &shard{id: fmt.Sprintf("shardId-%08d", len(st.shards)+1), parent: parent}
	st.shards = append(st.shards, sh)
	return sh
}

// record appends to the open shard of an item, found from the root of its tree.
func (st *stream) record(now time.Time, at address, before, after item) {
	if !st.enabled {
		return
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(at.pk + at.sk))
	sum := h.Sum32()
	sh := st.roots[int(sum)%len(st.roots)]
	for depth := uint32(1); sh.closed; depth++ {
		sh = sh.children[int(sum>>depth)%len(sh.children)]
	}
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

func (st *stream) divide(sh *shard, n int, hidden bool) {
	sh.closed = true
	for range n {
		child := st.newShard(sh)
		child.hidden = hidden
		sh.children = append(sh.children, child)
	}
}

// describePage is the number of shards in an answer.
const describePage = 10

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
		if len(shards) == describePage {
			d["LastEvaluatedShardId"] = shards[describePage-1]["ShardId"]
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
	at := sh.trimmed
	switch in.ShardIteratorType {
	case "LATEST":
		at = len(sh.records)
	case "AFTER_SEQUENCE_NUMBER":
		at = slices.IndexFunc(sh.records, func(r object) bool { return r["dynamodb"].(object)["SequenceNumber"] == in.SequenceNumber })
		if at < 0 {
			return nil, refuse("ValidationException", "Invalid SequenceNumber")
		}
		if at++; at < sh.trimmed {
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
	if at < sh.trimmed {
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
	if st.limit == 0 {
		return nil
	}
	places := st.readers[shard]
	if places == nil {
		places = map[string]time.Time{}
		st.readers[shard] = places
	}
	for name, last := range places {
		if time.Since(last) > time.Second {
			delete(places, name)
		}
	}
	if _, has := places[client]; !has && len(places) >= st.limit {
		return refuse("LimitExceededException", "%d clients read the shard", len(places))
	}
	places[client] = time.Now()
	return nil
}
