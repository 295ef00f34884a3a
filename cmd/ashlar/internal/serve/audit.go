package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/linefile"
	"github.com/ashlar-dev/storage/internal/jsonpb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// auditLog writes a line of JSON for each call that changes a resource or was refused. It never contains a token.
type auditLog struct {
	path         string
	policy       auditPolicy
	payloadTypes atomic.Pointer[protoregistry.Types] // the payloads of the served types
	logger       *slog.Logger

	mu    sync.Mutex
	lines *linefile.File
}

// newAuditLog returns the audit log of the configuration, not yet open. It returns nil if there is none.
func newAuditLog(c *Config, types *registry.Registry) (*auditLog, error) {
	if c.Audit == "" {
		return nil, nil
	}
	policy, err := parseAuditPolicy(c.AuditPolicy)
	if err != nil {
		return nil, err
	}
	a := &auditLog{path: c.Audit, policy: policy, logger: c.Logger, lines: linefile.New(c.Out)}
	a.setTypes(types)
	return a, nil
}

// setTypes sets the types whose payloads are written as JSON.
func (a *auditLog) setTypes(types *registry.Registry) {
	known := new(protoregistry.Types)
	for _, t := range types.Types() {
		_ = known.RegisterMessage(t.Proto.ProtoReflect().Type()) // several types may have the same message
	}
	a.payloadTypes.Store(known)
}

// open opens the file, again after it was renamed. If it fails, the previous file stays in use.
func (a *auditLog) open() error {
	if a.path == "-" {
		return nil
	}
	lines, err := linefile.Open(a.path)
	if err != nil {
		return fmt.Errorf("open the audit log: %w", err)
	}
	a.mu.Lock()
	previous := a.lines
	a.lines = lines // at once: a call that is recorded meanwhile has one of the files
	a.mu.Unlock()
	_ = previous.Close() // each line was written by a call of its own
	return nil
}

// close closes the file.
func (a *auditLog) close() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	_ = a.lines.Close() // each line was written by a call of its own
}

// callback returns the function that records calls, nil without an audit log.
func (a *auditLog) callback() func(context.Context, *service.Mutation) {
	if a == nil {
		return nil
	}
	return a.record
}

// auditEntry is a line of the audit log.
type auditEntry struct {
	Time      time.Time       `json:"time"`
	Method    string          `json:"method"`
	Caller    string          `json:"caller,omitempty"`
	Address   string          `json:"address,omitempty"`
	Type      string          `json:"type"`
	Partition string          `json:"partition,omitempty"`
	Namespace string          `json:"namespace,omitempty"`
	Name      string          `json:"name"`
	Uid       string          `json:"uid,omitempty"`
	Before    string          `json:"before,omitempty"`
	After     string          `json:"after,omitempty"`
	Deleted   bool            `json:"deleted,omitempty"`
	Code      string          `json:"code"`
	Error     string          `json:"error,omitempty"`
	Resource  json.RawMessage `json:"resource,omitempty"`
}

// maxAudited is the maximum number of bytes of a part of an id. A refused call may have any id, of the size of a message.
const maxAudited = 512

func truncate(text string) string {
	if len(text) <= maxAudited {
		return text
	}
	return strings.ToValidUTF8(text[:maxAudited], "") + "…"
}

// record writes a line for a call.
func (a *auditLog) record(ctx context.Context, m *service.Mutation) {
	level := a.policy.levelOf(m.ID.GetType())
	if level == auditNone {
		return
	}
	entry := auditEntry{
		Time: time.Now().UTC(), Method: m.Method, Type: truncate(registry.Name(m.ID.GetType())), Partition: truncate(m.ID.GetTenancy().GetPartition()),
		Namespace: truncate(m.ID.GetTenancy().GetNamespace()), Name: truncate(m.ID.GetName()), Uid: truncate(m.ID.GetUid()), Before: m.Before.GetVersion(),
		After: m.After.GetVersion(), Deleted: m.Deleted, Code: status.Code(m.Err).String(),
	}
	if who, ok := m.Caller.(*principal); ok {
		entry.Caller = who.name
	}
	if p, ok := peer.FromContext(ctx); ok {
		entry.Address = p.Addr.String()
	}
	if m.Err != nil {
		entry.Error = status.Convert(m.Err).Message()
	}
	subject := m.After
	if subject == nil {
		subject = m.Before
	}
	if subject != nil {
		entry.Uid = subject.GetId().GetUid()
	}
	if level == auditPayload && (m.Deleted || m.After != nil) {
		text, err := jsonpb.MarshalWith(subject, a.payload)
		if err != nil {
			a.logger.ErrorContext(ctx, "the audit log lacks a payload", "resource", m.ID.GetName(), "error", err)
		}
		entry.Resource = text
	}
	if err := a.write(&entry); err != nil {
		a.logger.ErrorContext(ctx, "the audit log lacks a call", "method", m.Method, "caller", entry.Caller, "type", entry.Type, "name", entry.Name, "error", err)
	}
}

// write writes a line by one call, so that lines of several processes do not mix.
func (a *auditLog) write(entry *auditEntry) error {
	line, err := json.Marshal(entry)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lines.Append(line)
}

// payload returns the JSON of a payload, as bytes if its message is not known.
func (a *auditLog) payload(data *anypb.Any) ([]byte, error) {
	known := a.payloadTypes.Load()
	if _, err := known.FindMessageByURL(data.GetTypeUrl()); err == nil {
		return jsonpb.MarshalPayload(data, known)
	}
	return jsonpb.MarshalPayload(data, nil)
}
