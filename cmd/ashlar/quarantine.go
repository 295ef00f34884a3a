package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/linefile"
)

// quarantine is a file of damaged resources that were taken out of a store.
type quarantine struct{ file *linefile.File }

// openQuarantine opens the file. It returns nil if path is empty.
func openQuarantine(path string) (*quarantine, error) {
	if path == "" {
		return nil, nil
	}
	file, err := linefile.Open(path)
	if err != nil {
		return nil, fmt.Errorf("quarantine: %w", err)
	}
	return &quarantine{file}, nil
}

// quarantineLine is a line of the file.
type quarantineLine struct {
	Time      time.Time `json:"time"`
	Type      string    `json:"type"`
	Partition string    `json:"partition"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Uid       string    `json:"uid,omitempty"`
	Version   string    `json:"version"`
	Error     string    `json:"error"`
	Data      []byte    `json:"data"` // what was stored
}

// add writes a damaged resource to the file, durably.
func (q *quarantine) add(d *storage.DamagedError) error {
	id := d.ID
	line, err := json.Marshal(quarantineLine{
		Time: time.Now().UTC(), Type: id.GetType().GetGroup() + "/" + id.GetType().GetKind(), Partition: id.GetTenancy().GetPartition(),
		Namespace: id.GetTenancy().GetNamespace(), Name: id.GetName(), Uid: id.GetUid(), Version: d.Version, Error: d.Err.Error(), Data: d.Data,
	})
	if err == nil {
		err = q.file.Append(line)
	}
	if err == nil {
		err = q.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("quarantine %s: %w", cli.FullName(id), err)
	}
	return nil
}

// close closes the file.
func (q *quarantine) close() {
	if q != nil {
		_ = q.file.Close() // each line is durable
	}
}
