// Package dynamofake implements the parts of DynamoDB's two HTTP APIs that the adapter uses, for tests of behaviour that no
// emulator has: shards that split, roll over and close, iterators that expire, stale reads, throttling, lost answers. The answers
// travel over a real connection to the real SDK.
package dynamofake

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
)

// Fault is the treatment of one request.
type Fault struct {
	// Code refuses the request with an error of this name, and Status, whose default is 400. The request is not applied.
	Code   string
	Status int
	// DropAnswer applies the request and closes the connection without an answer.
	DropAnswer bool
	// Cut applies the request and closes the connection in the middle of the answer.
	Cut bool
	// InternalError applies the request and answers with an internal error.
	InternalError bool
	// UnprocessedKeys leaves this many keys of a BatchGetItem unprocessed.
	UnprocessedKeys int
}

// Server is a DynamoDB with one table.
type Server struct {
	mu        sync.Mutex
	http      *httptest.Server
	faults    func(op string) Fault
	gate      func(op string)
	calls     map[string]int
	grants    map[string]int
	clockSkew time.Duration // difference between the server's clock and this process's
	clients   int
	holder    holder
	heat      heat

	table  *table
	stream *stream
	// Earlier streams of the table, by ARN.
	old map[string]*stream
}

// New starts a server with an empty table. The end of the test stops it.
func New(t testing.TB) *Server {
	t.Helper()
	s := &Server{calls: map[string]int{}, grants: map[string]int{}, table: newTable(), old: map[string]*stream{}}
	s.stream = newStream(1, 1)
	s.holder.server = &s.mu
	s.table.prepare = s.holder.prepare
	s.table.record = func(at address, before, after item) { s.stream.record(s.now(), at, before, after) }
	s.http = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.http.Close)
	return s
}

// URL returns the URL of the store with prefix "test".
func (s *Server) URL() string {
	return "dynamodb://" + Table + "/test?region=eu-north-1&endpoint=" + s.http.URL
}

// Clients returns clients of the SDK that retry without long pauses. Each pair is a separate client for the server.
func (s *Server) Clients(t testing.TB, options ...func(*dynamodb.Options)) (*dynamodb.Client, *dynamodbstreams.Client) {
	t.Helper()
	s.mu.Lock()
	s.clients++
	name := fmt.Sprintf("client-%d", s.clients)
	s.mu.Unlock()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	cfg := aws.Config{
		Region:       "eu-north-1",
		Credentials:  credentials.NewStaticCredentialsProvider(name, "fake", ""),
		HTTPClient:   &http.Client{Transport: transport},
		BaseEndpoint: aws.String(s.http.URL),
		Retryer: func() aws.Retryer {
			return retry.NewStandard(func(o *retry.StandardOptions) {
				o.MaxAttempts, o.MaxBackoff = 3, 5*time.Millisecond
			})
		},
	}
	return dynamodb.NewFromConfig(cfg, options...), dynamodbstreams.NewFromConfig(cfg)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	var in request
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	gate := s.gate
	s.mu.Unlock()
	if gate != nil {
		gate(op)
	}
	in.client = credential(r)
	in.signatureTime, _ = time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	fault, body, err := s.do(op, &in)
	w.Header().Set("Date", s.Now().UTC().Format(http.TimeFormat))
	if fault.DropAnswer || fault.Cut {
		hangUp(w, body, fault.Cut)
		return
	}
	status := http.StatusOK
	var refused *refusal
	if errors.As(err, &refused) {
		status = refused.status
		answer := map[string]any{"__type": "com.amazonaws.dynamodb.v20120810#" + refused.code, "message": refused.message}
		for name, value := range refused.more {
			answer[name] = value
		}
		body, _ = json.Marshal(answer)
	} else if err != nil {
		http.Error(w, err.Error(), http.StatusNotImplemented)
		return
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// hangUp closes the connection, with half an answer if cut is set.
func hangUp(w http.ResponseWriter, body []byte, cut bool) {
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	if cut {
		_, _ = fmt.Fprintf(buf, "HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: %d\r\n\r\n%s", len(body)+20, body[:len(body)/2])
		_ = buf.Flush()
	}
	_ = conn.Close()
}

// do processes a request, under the lock.
func (s *Server) do(op string, in *request) (Fault, []byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[op]++
	if err := s.checkSignature(in.signatureTime); err != nil {
		return Fault{}, nil, err
	}
	var fault Fault
	if s.faults != nil {
		fault = s.faults(op)
	}
	if fault.Code != "" {
		status := fault.Status
		if status == 0 {
			status = http.StatusBadRequest
		}
		return fault, nil, &refusal{status: status, code: fault.Code, message: "requested by the test"}
	}
	if err := s.holder.conflict(op, in); err != nil {
		return Fault{}, nil, err
	}
	if err := s.heat.admit(op, in); err != nil {
		return Fault{}, nil, err
	}
	out, err := s.answer(op, in, fault)
	if err != nil && !fault.InternalError {
		return fault, nil, err
	}
	if fault.InternalError {
		return fault, nil, &refusal{status: http.StatusInternalServerError, code: "InternalServerError", message: "requested by the test"}
	}
	s.grants[op]++
	if in.ReturnConsumedCapacity != "" {
		addCapacity(op, out)
	}
	body, err := json.Marshal(out)
	return fault, body, err
}

// addCapacity adds one consumed unit to an answer, whatever the request was.
func addCapacity(op string, out any) {
	unit := object{"TableName": Table, "CapacityUnits": 1}
	switch answer := out.(object); op {
	case "PutItem", "UpdateItem", "DeleteItem", "GetItem", "Query", "Scan":
		answer["ConsumedCapacity"] = unit
	case "BatchGetItem", "TransactWriteItems", "TransactGetItems":
		answer["ConsumedCapacity"] = []object{unit}
	}
}

func (s *Server) answer(op string, in *request, fault Fault) (any, error) {
	switch op {
	case "DescribeTable":
		return s.table.describe(in, s.stream)
	case "PutItem":
		return s.table.putItem(&write{Item: in.Item, ConditionExpression: in.ConditionExpression, ExpressionAttributeValues: in.ExpressionAttributeValues})
	case "DeleteItem":
		return s.table.deleteItem(&write{Key: in.Key, ConditionExpression: in.ConditionExpression, ExpressionAttributeValues: in.ExpressionAttributeValues})
	case "DescribeTimeToLive":
		return s.table.describeTimeToLive()
	case "UpdateContinuousBackups":
		return object{}, nil
	case "UpdateTimeToLive":
		return s.table.updateTimeToLive()
	case "UpdateItem":
		s.table.apply(&write{Key: in.Key, ExpressionAttributeValues: in.ExpressionAttributeValues}, update)
		return object{}, nil
	case "GetItem":
		return s.table.getItem(in)
	case "BatchGetItem":
		return s.table.batchGetItem(in, fault.UnprocessedKeys)
	case "TransactGetItems":
		return s.table.transactGet(in)
	case "Query":
		return s.table.query(in)
	case "Scan":
		return s.table.scan(in)
	case "TransactWriteItems":
		return s.table.transact(in)
	}
	call := map[string]func(*stream, *request) (any, error){
		"DescribeStream": (*stream).describe, "GetShardIterator": (*stream).getShardIterator, "GetRecords": (*stream).getRecords,
	}[op]
	if call == nil {
		return nil, refuse("UnknownOperationException", "the fake does not support %s", op)
	}
	arn := in.StreamArn
	if arn == "" {
		arn, _, _ = strings.Cut(in.ShardIterator, "|")
	}
	st, err := s.find(arn)
	if err != nil {
		return nil, err
	}
	return call(st, in)
}

func (s *Server) now() time.Time { return time.Now().Add(s.clockSkew) }

// checkSignature refuses a request if the server's time differs too much from the time in its signature.
func (s *Server) checkSignature(signed time.Time) error {
	if off := s.now().Sub(signed); off > signatureValidity || off < -signatureValidity {
		return refuse("InvalidSignatureException", "Signature expired, or not yet current: %v is too far from %v", signed, s.now())
	}
	return nil
}

// signatureValidity is how long AWS accepts a signature, at most.
const signatureValidity = 15 * time.Minute

// credential returns the access key of a request's signature.
func credential(r *http.Request) string {
	_, rest, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
	name, _, _ := strings.Cut(rest, "/")
	return name
}

func (s *Server) find(arn string) (*stream, error) {
	if s.stream.arn == arn {
		return s.stream, nil
	}
	if st := s.old[arn]; st != nil {
		return st, nil
	}
	return nil, refuse("ResourceNotFoundException", "Requested resource not found: Stream: %s not found", arn)
}

// Now returns the server's time, which appears in the Date of its answers and in the records of the stream.
func (s *Server) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now()
}
