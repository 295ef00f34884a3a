package dynamofake

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
)

// item is an item as it stands in requests: attribute, type, value.
type item map[string]map[string]any

func (it item) binary(name string) string {
	text, _ := it[name]["B"].(string)
	b, _ := base64.StdEncoding.DecodeString(text)
	return string(b)
}

func (it item) address() address { return address{it.binary("pk"), it.binary("sk")} }

type address struct{ pk, sk string }

// write is one member of a transaction, or a PutItem.
type write struct {
	Item, Key                 item
	ConditionExpression       string
	ExpressionAttributeValues item

	ReturnValuesOnConditionCheckFailure string
}

func (w *write) address() address {
	if w.Item != nil {
		return w.Item.address()
	}
	return w.Key.address()
}

// table holds the items, and their former states for stale reads.
type table struct {
	items map[address]item
	past  map[address][]item // nil for absent
	done  map[string]string  // tokens of transactions, and what they were
	noTTL bool
	// lag is how many states back an eventually consistent read looks.
	lag int
	// page is how many items an answer of Query has at most.
	page int
	// name and keys are what DescribeTable shows.
	hash, sort, kind, view string
}

func newTable() *table {
	return &table{
		items: map[address]item{}, past: map[address][]item{}, done: map[string]string{},
		page: 7, hash: "pk", sort: "sk", kind: "B", view: "NEW_AND_OLD_IMAGES",
	}
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

func (s *Server) describeTable(in *request) (any, error) {
	if in.TableName != Table {
		return nil, refuse("ResourceNotFoundException", "Requested resource not found: Table: %s not found", in.TableName)
	}
	description := object{
		"TableName": Table, "TableStatus": "ACTIVE",
		"KeySchema": []object{
			{"AttributeName": s.table.hash, "KeyType": "HASH"}, {"AttributeName": s.table.sort, "KeyType": "RANGE"},
		},
		"AttributeDefinitions": []object{
			{"AttributeName": s.table.hash, "AttributeType": s.table.kind}, {"AttributeName": s.table.sort, "AttributeType": s.table.kind},
		},
	}
	if s.stream.enabled {
		description["StreamSpecification"] = object{"StreamEnabled": true, "StreamViewType": s.table.view}
		description["LatestStreamArn"] = s.stream.arn
	}
	return object{"Table": description}, nil
}

// read returns what a read of a kind finds, nil for nothing.
func (t *table) read(at address, consistent bool) item {
	if !consistent && t.lag > 0 {
		if past := t.past[at]; len(past) > 0 {
			return past[max(0, len(past)-t.lag)]
		}
	}
	return t.items[at]
}

// holds evaluates the conditions that the adapter uses.
func (t *table) holds(w *write) (bool, error) {
	stored := t.items[w.address()]
	same := func(attribute, value string) bool {
		return stored[attribute] != nil && stored.binary(attribute) == w.ExpressionAttributeValues.binary(value)
	}
	switch w.ConditionExpression {
	case "":
		return true, nil
	case "attribute_not_exists(pk)":
		return stored == nil, nil
	case "attribute_not_exists(pk) OR v = :base":
		return stored == nil || same("v", ":base"), nil
	case "v = :base AND u = :uid":
		return same("v", ":base") && same("u", ":uid"), nil
	case "v = :v":
		return same("v", ":v"), nil
	case "v = :v AND attribute_not_exists(x)":
		return same("v", ":v") && stored["x"] == nil, nil
	case "attribute_not_exists(u)":
		return stored["u"] == nil, nil
	case "attribute_not_exists(u) OR u <> :uid":
		return stored["u"] == nil || !same("u", ":uid"), nil
	}
	return false, refuse("ValidationException", "the fake does not know the condition %q", w.ConditionExpression)
}

// action is what becomes of an item.
type action int

const (
	put action = iota // also: delete, where there is nothing to put
	update
)

// apply stores and leaves a record in the stream.
func (s *Server) apply(w *write, do action) {
	at := w.address()
	before := s.table.items[at]
	after := w.Item
	if do == update {
		after = item{}
		maps.Copy(after, before)
		maps.Copy(after, w.Key)
		after["ttl"] = w.ExpressionAttributeValues[":ttl"]
	}
	s.table.past[at] = append(s.table.past[at], before)
	if after == nil {
		delete(s.table.items, at)
	} else {
		s.table.items[at] = after
	}
	if before == nil && after == nil || fmt.Sprint(before) == fmt.Sprint(after) {
		return
	}
	s.stream.record(s.now(), at, before, after)
}

// Expire removes an item as DynamoDB does when its time is over.
func (s *Server) Expire(class byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, it := range s.table.items {
		if _, rest, ok := strings.Cut(at.pk, "\x00"); ok && rest[0] == class && it["ttl"] != nil {
			s.apply(&write{Key: item{"pk": it["pk"], "sk": it["sk"]}}, put)
		}
	}
}

// size is that of the names and the binary values.
func (it item) size() int {
	size := 0
	for name, value := range it {
		size += len(name)
		for kind, v := range value {
			if text, ok := v.(string); ok && kind == "B" {
				size += len(text) / 4 * 3
			}
		}
	}
	return size
}

// tooLarge is DynamoDB's bound of an item.
func (it item) tooLarge() error {
	if it.size() > 400<<10 {
		return refuse("ValidationException", "Item size has exceeded the maximum allowed size")
	}
	return nil
}

func (s *Server) putItem(w *write) (any, error) {
	if err := w.Item.tooLarge(); err != nil {
		return nil, err
	}
	ok, err := s.table.holds(w)
	if err != nil {
		return nil, err
	}
	if !ok {
		r := refuse("ConditionalCheckFailedException", "The conditional request failed")
		if stored := s.table.items[w.address()]; stored != nil {
			r.more = object{"Item": stored}
		}
		return nil, r
	}
	s.apply(w, put)
	return object{}, nil
}

func (s *Server) deleteItem(w *write) (any, error) {
	ok, err := s.table.holds(w)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, refuse("ConditionalCheckFailedException", "The conditional request failed")
	}
	s.apply(w, put)
	return object{}, nil
}

func (s *Server) getItem(in *request) (any, error) {
	if it := s.table.read(in.Key.address(), in.ConsistentRead); it != nil {
		return object{"Item": it}, nil
	}
	return object{}, nil
}

func (s *Server) batchGetItem(in *request, unprocessed int) (any, error) {
	found, left := []item{}, []item{}
	for _, get := range in.RequestItems {
		for _, k := range get.Keys {
			if unprocessed > 0 {
				unprocessed--
				left = append(left, k)
				continue
			}
			if it := s.table.read(k.address(), get.ConsistentRead); it != nil {
				found = append(found, it)
			}
		}
	}
	out := object{"Responses": object{Table: found}, "UnprocessedKeys": object{}}
	if len(left) > 0 {
		out["UnprocessedKeys"] = object{Table: object{"Keys": left, "ConsistentRead": in.RequestItems[Table].ConsistentRead}}
	}
	return out, nil
}

// SetQueryPage changes how many items an answer of Query has at most, from 7.
func (s *Server) SetQueryPage(items int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table.page = items
}

func (s *Server) query(in *request) (any, error) {
	pk, begins := in.ExpressionAttributeValues.binary(":pk"), in.ExpressionAttributeValues.binary(":sk")
	var found []address
	for at := range s.table.past {
		if at.pk == pk && strings.HasPrefix(at.sk, begins) && at.sk > in.ExclusiveStartKey.binary("sk") && s.table.read(at, in.ConsistentRead) != nil {
			found = append(found, at)
		}
	}
	slices.SortFunc(found, func(a, b address) int { return strings.Compare(a.sk, b.sk) })
	limit := s.table.page
	if in.Limit > 0 {
		limit = min(limit, in.Limit)
	}
	out := object{}
	if len(found) > limit {
		found = found[:limit]
		last := s.table.read(found[limit-1], in.ConsistentRead)
		out["LastEvaluatedKey"] = item{"pk": last["pk"], "sk": last["sk"]}
	}
	items := make([]item, len(found))
	for i, at := range found {
		items[i] = s.table.read(at, in.ConsistentRead)
	}
	out["Items"], out["Count"] = items, len(items)
	return out, nil
}

// member is one of a transaction. Exactly one of its fields is set.
type member struct{ Put, Delete, Update, ConditionCheck *write }

func (m *member) write() *write {
	for _, w := range []*write{m.Put, m.Delete, m.Update} {
		if w != nil {
			return w
		}
	}
	return m.ConditionCheck
}

// The most that a transaction may have.
const (
	transactItems = 100
	transactBytes = 4 << 20
)

func (s *Server) transact(in *request) (any, error) {
	what := fmt.Sprint(len(in.TransactItems), sumOf(in.TransactItems))
	if before, done := s.table.done[in.ClientRequestToken]; done {
		if before != what {
			return nil, refuse("IdempotentParameterMismatchException", "another transaction had this token")
		}
		return object{}, nil
	}
	if len(in.TransactItems) > transactItems {
		return nil, refuse("ValidationException", "Member must have length less than or equal to %d", transactItems)
	}
	reasons := make([]object, len(in.TransactItems))
	failed := false
	size, answer := 0, 0
	for i, m := range in.TransactItems {
		w := m.write()
		size += w.Item.size()
		if err := w.Item.tooLarge(); err != nil {
			return nil, err
		}
		ok, err := s.table.holds(w)
		if err != nil {
			return nil, err
		}
		reasons[i] = object{"Code": "None"}
		if !ok {
			failed = true
			reasons[i] = object{"Code": "ConditionalCheckFailed", "Message": "The conditional request failed"}
			if stored := s.table.items[w.address()]; stored != nil && w.ReturnValuesOnConditionCheckFailure == "ALL_OLD" {
				reasons[i]["Item"] = stored
				answer += stored.size()
			}
		}
	}
	switch {
	case size > transactBytes:
		return nil, refuse("ValidationException", "Collection size of items in the transaction cannot exceed 4 MB")
	case answer > transactBytes:
		return nil, refuse("ValidationException", "Payload in response is too large.")
	}
	if failed {
		r := refuse("TransactionCanceledException", "Transaction cancelled")
		r.more = object{"CancellationReasons": reasons}
		return nil, r
	}
	for _, m := range in.TransactItems {
		switch {
		case m.Update != nil:
			s.apply(m.Update, update)
		case m.ConditionCheck == nil:
			s.apply(m.write(), put)
		}
	}
	s.table.done[in.ClientRequestToken] = what
	return object{}, nil
}

func sumOf(members []member) uint64 {
	h := fnv.New64a()
	_ = json.NewEncoder(h).Encode(members) // maps are encoded in order
	return h.Sum64()
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

func (s *Server) describeTimeToLive() (any, error) {
	if s.table.noTTL {
		return object{"TimeToLiveDescription": object{"TimeToLiveStatus": "DISABLED"}}, nil
	}
	return object{"TimeToLiveDescription": object{"TimeToLiveStatus": "ENABLED", "AttributeName": "ttl"}}, nil
}

func (s *Server) updateTimeToLive() (any, error) {
	if !s.table.noTTL {
		return nil, refuse("ValidationException", "TimeToLive is already enabled")
	}
	s.table.noTTL = false
	return object{}, nil
}
