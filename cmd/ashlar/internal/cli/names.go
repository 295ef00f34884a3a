package cli

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/ashlar-dev/storage/resourcepb"
)

// DefaultTenancy is the partition and the namespace of resources that name none.
const DefaultTenancy = "default"

// TypeName returns the printable group and kind of a type.
func TypeName(t *resourcepb.Type) string {
	return Printable(t.GetGroup()) + "/" + Printable(t.GetKind())
}

// FullName returns the printable type and name of a resource.
func FullName(id *resourcepb.ID) string {
	return TypeName(id.GetType()) + "/" + Printable(id.GetName())
}

// Printable returns s, in quotes if it would break a table or a terminal.
func Printable(s string) string {
	if s == "" || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// Describe returns the type, tenancy and name of a resource. It omits the default partition.
func Describe(id *resourcepb.ID) string {
	name := Printable(id.GetName())
	if id.GetTenancy().GetPartition() != DefaultTenancy {
		return fmt.Sprintf("%s %s/%s/%s", TypeName(id.GetType()), Printable(id.GetTenancy().GetPartition()),
			Printable(id.GetTenancy().GetNamespace()), name)
	}
	return fmt.Sprintf("%s %s/%s", TypeName(id.GetType()), Printable(id.GetTenancy().GetNamespace()), name)
}
