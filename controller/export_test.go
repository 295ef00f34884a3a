package controller

// SetLogLength bounds the changes that the copies of a manager keep for mappers.
func (m *Manager) SetLogLength(n int) {
	for _, i := range m.informers {
		i.logLength = n
	}
}
