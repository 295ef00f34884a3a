package fake

import (
	"encoding/base64"
	"fmt"
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
	done  map[string]bool    // tokens of transactions
	// lag is how many states back an eventually consistent read looks.
	lag int
	// name and keys are what DescribeTable shows.
	hash, sort, kind, view string
}

func newTable() *table {
	return &table{
		items: map[address]item{}, past: map[address][]item{}, done: map[string]bool{},
		hash: "pk", sort: "sk", kind: "B", view: "NEW_AND_OLD_IMAGES",
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
	case "attribute_not_exists(u)":
		return stored["u"] == nil, nil
	case "attribute_not_exists(u) OR u <> :uid":
		return stored["u"] == nil || !same("u", ":uid"), nil
	}
	return false, refuse("ValidationException", "the fake does not know the condition %q", w.ConditionExpression)
}

// apply stores and leaves a record in the stream.
func (s *Server) apply(w *write, update bool) {
	at := w.address()
	before := s.table.items[at]
	after := w.Item
	if update {
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
	s.stream.record(at, before, after)
}

// Expire removes an item as DynamoDB does when its time is over.
func (s *Server) Expire(class byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, it := range s.table.items {
		if _, rest, ok := strings.Cut(at.pk, "\x00"); ok && rest[0] == class && it["ttl"] != nil {
			s.apply(&write{Key: item{"pk": it["pk"], "sk": it["sk"]}}, false)
		}
	}
}

// tooLarge is DynamoDB's bound of an item.
func (it item) tooLarge() error {
	size := 0
	for name, value := range it {
		size += len(name)
		for kind, v := range value {
			if text, ok := v.(string); ok && kind == "B" {
				size += len(text) / 4 * 3
			}
		}
	}
	if size > 400<<10 {
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
	s.apply(w, false)
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

// queryPage is how many items an answer has at most.
const queryPage = 7

func (s *Server) query(in *request) (any, error) {
	pk, begins := in.ExpressionAttributeValues.binary(":pk"), in.ExpressionAttributeValues.binary(":sk")
	var found []address
	for at := range s.table.past {
		if at.pk == pk && strings.HasPrefix(at.sk, begins) && at.sk > in.ExclusiveStartKey.binary("sk") && s.table.read(at, in.ConsistentRead) != nil {
			found = append(found, at)
		}
	}
	slices.SortFunc(found, func(a, b address) int { return strings.Compare(a.sk, b.sk) })
	limit := queryPage
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

func (s *Server) transact(in *request) (any, error) {
	if s.table.done[in.ClientRequestToken] {
		return object{}, nil
	}
	reasons := make([]object, len(in.TransactItems))
	failed := false
	for i, m := range in.TransactItems {
		w := m.Put
		for _, other := range []*write{m.Delete, m.Update, m.ConditionCheck} {
			if other != nil {
				w = other
			}
		}
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
			if stored := s.table.items[w.address()]; stored != nil {
				reasons[i]["Item"] = stored
			}
		}
	}
	if failed {
		r := refuse("TransactionCanceledException", "Transaction cancelled")
		r.more = object{"CancellationReasons": reasons}
		return nil, r
	}
	for _, m := range in.TransactItems {
		switch {
		case m.Put != nil:
			s.apply(m.Put, false)
		case m.Delete != nil:
			s.apply(m.Delete, false)
		case m.Update != nil:
			s.apply(m.Update, true)
		}
	}
	s.table.done[in.ClientRequestToken] = true
	return object{}, nil
}
