package driver

import "github.com/ashlar-dev/storage/driver/key"

// Key identifies a resource: (group, kind, partition, namespace, name). Its Bytes are in list order.
type Key = key.Key

// Filter says which keys a list or a watch is about.
type Filter = key.Filter
