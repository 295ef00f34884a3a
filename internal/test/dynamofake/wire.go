package dynamofake

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"time"
)

// request has the fields of all supported requests.
type request struct {
	client        string    // access key of the signature
	signatureTime time.Time // the time in the signature

	TableName                           string
	Item, Key                           item
	ConditionExpression                 string
	ExpressionAttributeValues           item
	ReturnValuesOnConditionCheckFailure string
	ReturnConsumedCapacity              string
	ConsistentRead                      bool
	RequestItems                        map[string]struct {
		Keys           []item
		ConsistentRead bool
	}
	KeyConditionExpression string
	ExclusiveStartKey      item
	Limit                  int
	TransactItems          []member
	ClientRequestToken     string

	StreamArn, ShardId, ShardIteratorType, SequenceNumber string
	ExclusiveStartShardId, ShardIterator                  string
}

type object = map[string]any

// refusal is an error of the service.
type refusal struct {
	status        int
	code, message string
	more          map[string]any
}

func (r *refusal) Error() string { return r.code + ": " + r.message }

func refuse(code, format string, args ...any) *refusal {
	return &refusal{status: http.StatusBadRequest, code: code, message: fmt.Sprintf(format, args...)}
}

// item is an item in the form of requests: attribute, type, value.
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

// member is an element of a transaction. Exactly one of its fields is set.
type member struct{ Get, Put, Delete, Update, ConditionCheck *write }

func (m *member) write() *write {
	for _, w := range []*write{m.Put, m.Delete, m.Update} {
		if w != nil {
			return w
		}
	}
	return m.ConditionCheck
}

// size returns the size of the names and the binary values.
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

// Table is the name of the table.
const Table = "fake-table"
