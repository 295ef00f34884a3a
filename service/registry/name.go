package registry

import (
	"fmt"
	"regexp"

	"github.com/ashlar-dev/storage/resourcepb"
)

// name is a type name as a map key.
type name struct{ group, version, kind string }

func nameOf(t *resourcepb.Type) name {
	return name{group: t.GetGroup(), version: t.GetGroupVersion(), kind: t.GetKind()}
}

// Name returns a type's name as one string, such as "catalog.v1.Service".
func Name(t *resourcepb.Type) string {
	return t.GetGroup() + "." + t.GetGroupVersion() + "." + t.GetKind()
}

// The patterns of the compatible API, except that a group may also contain '.' and '-', as groups of Kubernetes do.
var (
	group   = regexp.MustCompile(`^[a-z][a-z\d_.-]*[a-z\d_]$`)
	version = regexp.MustCompile(`^v([a-z\d]+)?\d$`)
	kind    = regexp.MustCompile(`^[A-Z][A-Za-z\d]+$`)
)

// maxPart is the maximum size in bytes of a part of a type's name, as of a part of a store's key.
const maxPart = 255

// nameFaults returns the errors in the name of a type.
func nameFaults(t *resourcepb.Type) (faults []string) {
	for _, part := range []struct {
		what, text string
		pattern    *regexp.Regexp
	}{
		{"group", t.GetGroup(), group},
		{"group version", t.GetGroupVersion(), version},
		{"kind", t.GetKind(), kind},
	} {
		if len(part.text) > maxPart || !part.pattern.MatchString(part.text) {
			faults = append(faults, fmt.Sprintf("the %s %.80q does not match %s, or has more than %d bytes", part.what, part.text, part.pattern, maxPart))
		}
	}
	return faults
}
