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

// filter holds the flags that select several resources.
type filter struct {
	tenancy
	allNamespaces bool
	prefix        string
	limit         int
}

// wholeStore returns a filter that matches all resources.
func wholeStore() filter {
	return filter{tenancy: tenancy{partition: storage.Wildcard, namespace: storage.Wildcard}}
}

// flags adds the flags of a command for the resources of a type, in one namespace or, with -A, in all of them.
func (f *filter) flags(cmd *cobra.Command, items string) {
	f.tenancy.flags(cmd, cli.DefaultTenancy)
	cmd.Flags().BoolVarP(&f.allNamespaces, "all-namespaces", "A", false, "all namespaces of the partition, instead of -n")
	f.limits(cmd, items)
}

// limits adds the flags that restrict the output.
func (f *filter) limits(cmd *cobra.Command, items string) {
	cmd.Flags().StringVar(&f.prefix, "prefix", "", "only names with this prefix")
	cmd.Flags().IntVar(&f.limit, "limit", 0, "maximum number of "+items+" (default: no limit)")
}

// check checks the flags, and applies -A.
func (f *filter) check(cmd *cobra.Command) error {
	if f.allNamespaces {
		if cmd.Flags().Changed("namespace") {
			return cli.Usagef("-n and -A are mutually exclusive")
		}
		f.namespace = storage.Wildcard
	}
	if f.limit < 0 {
		return cli.Usagef("--limit must be 0 or more, found %d", f.limit)
	}
	return nil
}

// text describes the selection, for the end of a sentence.
func (f *filter) text() string {
	var parts []string
	if f.partition != storage.Wildcard && f.partition != cli.DefaultTenancy {
		parts = append(parts, "partition "+cli.Printable(f.partition))
	}
	if f.namespace != storage.Wildcard {
		parts = append(parts, "namespace "+cli.Printable(f.namespace))
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
