package web

import (
	"sync"
	"time"
)

const (
	// maxCachedKinds bounds the memory of a kindCache.
	maxCachedKinds = 1000
	// cachedKindAge bounds the time after the deletion of a kind's last resource for which a path still finds the kind.
	cachedKindAge = 10 * time.Second
)

// kindCache holds names of kinds, group/Kind, that were stored recently, so that most requests for them do not look for the kind. Its zero value is
// empty and ready to use.
type kindCache struct {
	mu    sync.Mutex
	until map[string]time.Time
}

func (c *kindCache) has(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Before(c.until[name])
}

func (c *kindCache) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.until == nil || len(c.until) >= maxCachedKinds {
		c.until = map[string]time.Time{}
	}
	c.until[name] = time.Now().Add(cachedKindAge)
}
