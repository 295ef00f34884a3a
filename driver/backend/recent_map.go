package backend

import "sync"

// recentMap is a map of a bounded size: beyond limit, an entry replaces an arbitrary other one. It is safe for concurrent use.
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

// swapState is what is remembered of a record: nothing of its contents. A handle that swaps a key again, and expects the state in
// which it left the key, does not read it first: the change depends on the version, so an outdated state does no harm.
type swapState struct {
	uid, version              string
	created, modified, writes int64
}

// maxSwaps is how many keys are remembered, each with some 400 bytes.
const maxSwaps = 1 << 14

// maxPositions is how many positions of revisions are remembered, so that the next page of a listing is read without a lookup.
// Listings that go on at the same time mostly share a few. ReadAt finds out each time whether a position can still be read.
const maxPositions = 256
