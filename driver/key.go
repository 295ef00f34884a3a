package driver

import "github.com/ashlar-dev/storage/driver/key"

// Key identifies a resource: (group, kind, partition, namespace, name). Its Bytes are in list order.
type Key = key.Key

// Filter selects the keys of a list or a watch.
type Filter = key.Filter
