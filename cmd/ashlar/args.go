package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// parseType reads TYPE. Only lists and watches allow wildcards.
func parseType(s string, wildcards bool) (storage.UnversionedType, error) {
	if s == storage.Wildcard && wildcards {
		return storage.UnversionedType{Group: storage.Wildcard, Kind: storage.Wildcard}, nil
	}
	i := strings.LastIndexByte(s, '/')
	if i <= 0 || i == len(s)-1 {
		expected := "group/Kind, such as apps/Deployment"
		if wildcards {
			expected += ", or *"
		}
		return storage.UnversionedType{}, cli.Usagef("TYPE must be %s, found %q", expected, s)
	}
	typ := storage.UnversionedType{Group: s[:i], Kind: s[i+1:]}
	if !wildcards && (typ.Group == storage.Wildcard || typ.Kind == storage.Wildcard) {
		return typ, cli.Usagef("TYPE must be a single type here, found %q", s)
	}
	return typ, nil
}

// tenancy holds the flags -p and -n.
type tenancy struct {
	partition, namespace string
}

func (t *tenancy) flags(cmd *cobra.Command, byDefault string) {
	cmd.Flags().StringVarP(&t.namespace, "namespace", "n", byDefault, "namespace")
	cmd.Flags().StringVarP(&t.partition, "partition", "p", byDefault, "partition")
}

func (t *tenancy) proto() *resourcepb.Tenancy {
	return &resourcepb.Tenancy{Partition: t.partition, Namespace: t.namespace}
}

// id reads TYPE and NAME.
func (t *tenancy) id(typ, name string) (*resourcepb.ID, error) {
	parsed, err := parseType(typ, false)
	if err != nil {
		return nil, err
	}
	return &resourcepb.ID{
		Name: name, Type: &resourcepb.Type{Group: parsed.Group, Kind: parsed.Kind}, Tenancy: t.proto(),
	}, nil
}

// filter holds the flags that select resources for list and watch.
type filter struct {
	tenancy
	prefix string
	limit  int
}

func (f *filter) flags(cmd *cobra.Command, items string) {
	f.tenancy.flags(cmd, storage.Wildcard)
	cmd.Flags().StringVar(&f.prefix, "prefix", "", "only names with this prefix")
	cmd.Flags().IntVar(&f.limit, "limit", 0, "maximum number of "+items+" (default: no limit)")
}

func (f *filter) check() error {
	if f.limit < 0 {
		return cli.Usagef("--limit must be 0 or more, found %d", f.limit)
	}
	return nil
}

// text describes the selection, for the end of a sentence.
func (f *filter) text() string {
	var parts []string
	for _, part := range []struct{ name, value string }{{"partition", f.partition}, {"namespace", f.namespace}} {
		if part.value != storage.Wildcard {
			parts = append(parts, fmt.Sprintf("%s %s", part.name, cli.Printable(part.value)))
		}
	}
	text := ""
	if len(parts) > 0 {
		text = " in " + strings.Join(parts, ", ")
	}
	if f.prefix != "" {
		text += fmt.Sprintf(" with the prefix %q", f.prefix)
	}
	return text
}

// forType returns the filter for a type.
func (f *filter) forType(typ storage.UnversionedType) *key.Filter {
	return &key.Filter{Group: typ.Group, Kind: typ.Kind, Partition: f.partition, Namespace: f.namespace, NamePrefix: f.prefix}
}
