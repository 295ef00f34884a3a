package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// An audit log has a line for each call, also for those that are recorded while the file is opened again.
func TestAuditLogOpenedAgain(t *testing.T) {
	t.Parallel()
	const callers, calls = 4, 2000
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	var log bytes.Buffer
	a, err := newAuditLog(&Config{Audit: path, Logger: slog.New(slog.NewTextHandler(&log, nil))}, registry.NewOpen(registry.Type{}))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.open(); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			id := &resourcepb.ID{Type: &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Album"}, Name: "a"}
			for range calls {
				a.record(context.Background(), &service.Mutation{Method: "Write", ID: id})
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	files := 0
	for recording := true; recording; files++ {
		if err := os.Rename(path, fmt.Sprint(path, ".", files)); err != nil {
			t.Fatal(err)
		}
		if err := a.open(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-done:
			recording = false
		default:
		}
	}
	a.close()
	lines := 0
	written, err := filepath.Glob(path + "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range written {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines += bytes.Count(text, []byte("\n"))
	}
	if lines != callers*calls {
		t.Errorf("the audit log has %d lines for %d calls; the server's log: %.300s", lines, callers*calls, log.String())
	}
}

// A refused call with a large id writes a short line.
func TestAuditLogBoundsIDs(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	a, err := newAuditLog(&Config{Audit: "-", Out: &out, Logger: slog.New(slog.DiscardHandler)}, registry.NewOpen(registry.Type{}))
	if err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("\x01", 1<<20)
	a.record(t.Context(), &service.Mutation{Method: "Write", ID: &resourcepb.ID{
		Type: &resourcepb.Type{Group: large, GroupVersion: large, Kind: large}, Tenancy: &resourcepb.Tenancy{Partition: large, Namespace: large}, Name: large, Uid: large,
	}})
	a.record(t.Context(), &service.Mutation{Method: "Write"})
	if lines := bytes.Count(out.Bytes(), []byte("\n")); lines != 2 || out.Len() > 32<<10 {
		t.Errorf("%d lines of %d bytes, expected 2 short ones", lines, out.Len())
	}
}

// A record that was written in part, because the disk was full, does not damage the next one. The server's log names the lost call.
func TestAuditLogAfterFullDisk(t *testing.T) {
	t.Parallel()
	out := &fixture.Disk{Free: 20}
	var log bytes.Buffer
	a, err := newAuditLog(&Config{Audit: "-", Out: out, Logger: slog.New(slog.NewTextHandler(&log, nil))}, registry.NewOpen(registry.Type{}))
	if err != nil {
		t.Fatal(err)
	}
	record := func(name string) {
		a.record(t.Context(), &service.Mutation{Method: "Write", ID: &resourcepb.ID{Type: &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Album"}, Name: name}})
	}
	record("lost")
	out.Free = 1 << 20
	record("next")
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var entry auditEntry
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &entry); err != nil || entry.Name != "next" {
		t.Errorf("the last line is %q: %v", lines[len(lines)-1], err)
	}
	if !strings.Contains(log.String(), "the audit log lacks a call") || !strings.Contains(log.String(), "name=lost") {
		t.Errorf("the server's log does not name the lost call: %s", &log)
	}
}
