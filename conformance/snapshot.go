package conformance

var snapshotCases = topic{"Snapshot", []testCase{
	{name: "Large", run: snapshotLarge},
}}

// snapshotLarge makes changes to unread parts of a snapshot that is too large to be buffered.
func snapshotLarge(s *suite) {
	all := createLarge(s)
	w := s.watch(things, home, "")
	s.expectUpsert(w, all[0])
	events := changeTheEnd(s, all)
	s.equalLists("the rest of the snapshot", s.snapshot(w), all[1:])
	for _, want := range events {
		s.expectEvent(w, want)
	}
}
