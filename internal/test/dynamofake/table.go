package dynamofake

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// table contains the items, and their earlier states for stale reads.
type table struct {
	items        map[address]item
	versions     versions
	transactions map[string][]member // by token
	// forgetful makes the table ignore the tokens of transactions.
	forgetful bool
	// prepare runs between the checks of a transaction and its effect.
	prepare func(members []member)
	// record appends a change to the stream.
	record func(at address, before, after item)

	noTTL        bool
	ttlAttribute string
	replicas     []object
	// lag is the age of eventually consistent reads, as a number of states.
	lag int
	// page is the maximum number of items in an answer of Query.
	page int
	// Limits of the bytes of an item, and of the items of a transaction or in its answer.
	itemBytes, transactBytes int
	// Name and keys in DescribeTable.
	hash, sort, kind, view string
}

// versions contains the earlier states of each item, by partition key and sort key; nil for absent.
type versions map[string]map[string][]item

func (v versions) add(at address, before item) {
	if v[at.pk] == nil {
		v[at.pk] = map[string][]item{}
	}
	v[at.pk][at.sk] = append(v[at.pk][at.sk], before)
}

func newTable() *table {
	return &table{
		items: map[address]item{}, versions: versions{}, transactions: map[string][]member{},
		ttlAttribute: "ttl", page: 7, itemBytes: 400 << 10, transactBytes: 4 << 20, hash: "pk", sort: "sk", kind: "B", view: "NEW_AND_OLD_IMAGES",
	}
}

func (t *table) describe(in *request, st *stream) (any, error) {
	if in.TableName != Table {
		return nil, refuse("ResourceNotFoundException", "Requested resource not found: Table: %s not found", in.TableName)
	}
	description := object{
		"TableName": Table, "TableStatus": "ACTIVE",
		"KeySchema": []object{
			{"AttributeName": t.hash, "KeyType": "HASH"}, {"AttributeName": t.sort, "KeyType": "RANGE"},
		},
		"AttributeDefinitions": []object{
			{"AttributeName": t.hash, "AttributeType": t.kind}, {"AttributeName": t.sort, "AttributeType": t.kind},
		},
	}
	if len(t.replicas) > 0 {
		description["Replicas"] = t.replicas
	}
	if st.enabled {
		description["StreamSpecification"] = object{"StreamEnabled": true, "StreamViewType": t.view}
		description["LatestStreamArn"] = st.arn
	}
	return object{"Table": description}, nil
}

// read returns the item that a read of a kind finds, or nil.
func (t *table) read(at address, consistent bool) item {
	if !consistent && t.lag > 0 {
		if past := t.versions[at.pk][at.sk]; len(past) > 0 {
			return past[max(0, len(past)-t.lag)]
		}
	}
	return t.items[at]
}

// checkSize checks the size limit of an item.
func (t *table) checkSize(it item) error {
	if it.size() > t.itemBytes {
		return refuse("ValidationException", "Item size has exceeded the maximum allowed size")
	}
	return nil
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
	case "v = :v AND attribute_not_exists(g)":
		return same("v", ":v") && stored["g"] == nil, nil
	case "id = :id AND attribute_not_exists(v)":
		return same("id", ":id") && stored["v"] == nil, nil
	case "id = :id AND v = :v":
		return same("id", ":id") && same("v", ":v"), nil
	case "attribute_not_exists(u)":
		return stored["u"] == nil, nil
	case "attribute_not_exists(u) OR u <> :uid":
		return stored["u"] == nil || !same("u", ":uid"), nil
	}
	return false, refuse("ValidationException", "the fake does not support the condition %q", w.ConditionExpression)
}

// action is the effect on an item.
type action int

const (
	put action = iota // also delete, if there is no item to put
	update
)

// apply stores a state and appends a record to the stream.
func (t *table) apply(w *write, do action) {
	at := w.address()
	before := t.items[at]
	after := w.Item
	if do == update {
		after = item{}
		maps.Copy(after, before)
		maps.Copy(after, w.Key)
		for value, attribute := range map[string]string{":ttl": "ttl", ":next": "v"} {
			if v := w.ExpressionAttributeValues[value]; v != nil {
				after[attribute] = v
			}
		}
	}
	t.versions.add(at, before)
	if after == nil {
		delete(t.items, at)
	} else {
		t.items[at] = after
	}
	if before == nil && after == nil || reflect.DeepEqual(before, after) {
		return
	}
	t.record(at, before, after)
}

// transactItems is the maximum number of items of a transaction.
const transactItems = 100

func (t *table) putItem(w *write) (any, error) {
	if err := t.checkSize(w.Item); err != nil {
		return nil, err
	}
	ok, err := t.holds(w)
	if err != nil {
		return nil, err
	}
	if !ok {
		r := refuse("ConditionalCheckFailedException", "The conditional request failed")
		if stored := t.items[w.address()]; stored != nil {
			r.more = object{"Item": stored}
		}
		return nil, r
	}
	t.apply(w, put)
	return object{}, nil
}

func (t *table) deleteItem(w *write) (any, error) {
	ok, err := t.holds(w)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, refuse("ConditionalCheckFailedException", "The conditional request failed")
	}
	t.apply(w, put)
	return object{}, nil
}

func (t *table) getItem(in *request) (any, error) {
	if it := t.read(in.Key.address(), in.ConsistentRead); it != nil {
		return object{"Item": it}, nil
	}
	return object{}, nil
}

func (t *table) batchGetItem(in *request, unprocessed int) (any, error) {
	found, left := []item{}, []item{}
	for _, get := range in.RequestItems {
		for _, k := range get.Keys {
			if unprocessed > 0 {
				unprocessed--
				left = append(left, k)
				continue
			}
			if it := t.read(k.address(), get.ConsistentRead); it != nil {
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

func (t *table) transactGet(in *request) (any, error) {
	found := make([]object, len(in.TransactItems))
	for i, m := range in.TransactItems {
		found[i] = object{}
		if it := t.items[m.Get.Key.address()]; it != nil {
			found[i]["Item"] = it
		}
	}
	return object{"Responses": found}, nil
}

func (t *table) query(in *request) (any, error) {
	pk, begins, after := in.ExpressionAttributeValues.binary(":pk"), in.ExpressionAttributeValues.binary(":sk"), in.ExclusiveStartKey.binary("sk")
	var found []address
	for sk := range t.versions[pk] {
		if at := (address{pk, sk}); strings.HasPrefix(sk, begins) && sk > after && t.read(at, in.ConsistentRead) != nil {
			found = append(found, at)
		}
	}
	slices.SortFunc(found, func(a, b address) int { return strings.Compare(a.sk, b.sk) })
	limit := t.page
	if in.Limit > 0 {
		limit = min(limit, in.Limit)
	}
	out := object{}
	if len(found) > limit {
		found = found[:limit]
		last := t.read(found[limit-1], in.ConsistentRead)
		out["LastEvaluatedKey"] = item{"pk": last["pk"], "sk": last["sk"]}
	}
	items := make([]item, len(found))
	for i, at := range found {
		items[i] = t.read(at, in.ConsistentRead)
	}
	out["Items"], out["Count"] = items, len(items)
	return out, nil
}

// scan reads the table in the order of its partitions.
func (t *table) scan(in *request) (any, error) {
	after := ""
	if in.ExclusiveStartKey != nil {
		after = positionOf(in.ExclusiveStartKey.address())
	}
	var found []address
	for at := range t.items {
		if positionOf(at) > after {
			found = append(found, at)
		}
	}
	slices.SortFunc(found, func(a, b address) int { return strings.Compare(positionOf(a), positionOf(b)) })
	out := object{}
	if len(found) > in.Limit {
		found = found[:in.Limit]
		last := t.items[found[in.Limit-1]]
		out["LastEvaluatedKey"] = item{"pk": last["pk"], "sk": last["sk"]}
	}
	items := []item{}
	for _, at := range found {
		if strings.HasPrefix(at.pk, in.ExpressionAttributeValues.binary(":store")) {
			items = append(items, t.items[at])
		}
	}
	out["Items"], out["Count"] = items, len(items)
	return out, nil
}

func (t *table) transact(in *request) (any, error) {
	if before, done := t.transactions[in.ClientRequestToken]; done && !t.forgetful {
		if !reflect.DeepEqual(before, in.TransactItems) {
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
		if err := t.checkSize(w.Item); err != nil {
			return nil, err
		}
		ok, err := t.holds(w)
		if err != nil {
			return nil, err
		}
		reasons[i] = object{"Code": "None"}
		if !ok {
			failed = true
			reasons[i] = object{"Code": "ConditionalCheckFailed", "Message": "The conditional request failed"}
			if stored := t.items[w.address()]; stored != nil && w.ReturnValuesOnConditionCheckFailure == "ALL_OLD" {
				reasons[i]["Item"] = stored
				answer += stored.size()
			}
		}
	}
	switch {
	case size > t.transactBytes:
		return nil, refuse("ValidationException", "Collection size of items in the transaction cannot exceed 4 MB")
	case answer > t.transactBytes:
		return nil, refuse("ValidationException", "Payload in response is too large.")
	}
	if failed {
		r := refuse("TransactionCanceledException", "Transaction cancelled")
		r.more = object{"CancellationReasons": reasons}
		return nil, r
	}
	t.prepare(in.TransactItems)
	for _, m := range in.TransactItems {
		switch {
		case m.Update != nil:
			t.apply(m.Update, update)
		case m.ConditionCheck == nil:
			t.apply(m.write(), put)
		}
	}
	t.transactions[in.ClientRequestToken] = in.TransactItems
	return object{}, nil
}

func (t *table) describeTimeToLive() (any, error) {
	if t.noTTL {
		return object{"TimeToLiveDescription": object{"TimeToLiveStatus": "DISABLED"}}, nil
	}
	return object{"TimeToLiveDescription": object{"TimeToLiveStatus": "ENABLED", "AttributeName": t.ttlAttribute}}, nil
}

func (t *table) updateTimeToLive() (any, error) {
	if !t.noTTL {
		return nil, refuse("ValidationException", "TimeToLive is already enabled")
	}
	t.noTTL = false
	return object{}, nil
}
