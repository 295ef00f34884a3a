package conformance

import "github.com/ashlar-dev/storage/resourcepb"

// decision is a row of a decision table: the arguments of a call and its result.
type decision struct {
	name    string
	current bool
	uid     func(stored *resourcepb.Resource) string
	version func(stored *resourcepb.Resource) string
	want    error
}

func sameUid(r *resourcepb.Resource) string     { return r.GetId().GetUid() }
func otherUid(*resourcepb.Resource) string      { return "another-uid" }
func noText(*resourcepb.Resource) string        { return "" }
func sameVersion(r *resourcepb.Resource) string { return r.GetVersion() }
func otherVersion(*resourcepb.Resource) string  { return "another-version" }
