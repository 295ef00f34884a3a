package backend

import "sync"

// recentMap is a map of bounded size: beyond limit, a new entry replaces an arbitrary other one. It is safe for concurrent use.
type recentMap[K comparable, V any] struct {
	limit int

	mu      sync.Mutex
	entries map[K]V
}

func (m *recentMap[K, V]) put(k K, v V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.entries == nil {
		m.entries = make(map[K]V)
	}
	if _, exists := m.entries[k]; !exists && len(m.entries) >= m.limit {
		for other := range m.entries {
			delete(m.entries, other)
			break
		}
	}
	m.entries[k] = v
}

func (m *recentMap[K, V]) get(k K) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, exists := m.entries[k]
	return v, exists
}

func (m *recentMap[K, V]) remove(k K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.entries, k)
}

// swapState describes a record without its contents. A handle that swaps a key again and expects the result of its last swap does
// not read the key first. An outdated state does no harm, because the change is conditional on the version.
type swapState struct {
	uid, version                           string
	createRevision, modifyRevision, writes int64
}

// maxSwaps is the number of remembered keys, each of about 400 bytes.
const maxSwaps = 1 << 14

// maxPositions is the number of remembered positions of revisions, which save the lookup for the next page of a listing. Concurrent
// listings mostly share a few. ReadAt checks each time whether a position can still be read.
const maxPositions = 256
