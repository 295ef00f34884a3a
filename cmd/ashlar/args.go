package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// parseType reads TYPE. Wildcards are for lists and watches.
func parseType(s string, wildcards bool) (storage.UnversionedType, error) {
	if s == storage.Wildcard && wildcards {
		return storage.UnversionedType{Group: storage.Wildcard, Kind: storage.Wildcard}, nil
	}
	i := strings.LastIndexByte(s, '/')
	if i <= 0 || i == len(s)-1 {
		wanted := "group/Kind, such as apps/Deployment"
		if wildcards {
			wanted += ", or *"
		}
		return storage.UnversionedType{}, cli.Usagef("TYPE is to be %s, found %q", wanted, s)
	}
	typ := storage.UnversionedType{Group: s[:i], Kind: s[i+1:]}
	if !wildcards && (typ.Group == storage.Wildcard || typ.Kind == storage.Wildcard) {
		return typ, cli.Usagef("TYPE is to be one type here, found %q", s)
	}
	return typ, nil
}

// tenancy is the pair of flags -p and -n.
type tenancy struct {
	partition, namespace string
}

func (t *tenancy) flags(cmd *cobra.Command, otherwise string) {
	cmd.Flags().StringVarP(&t.namespace, "namespace", "n", otherwise, "namespace")
	cmd.Flags().StringVarP(&t.partition, "partition", "p", otherwise, "partition")
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

// filter is what list and watch select by.
type filter struct {
	tenancy
	prefix string
	limit  int
}

func (f *filter) flags(cmd *cobra.Command, limited string) {
	f.tenancy.flags(cmd, storage.Wildcard)
	cmd.Flags().StringVar(&f.prefix, "prefix", "", "only names that begin so")
	cmd.Flags().IntVar(&f.limit, "limit", 0, "stop after so many "+limited+" (default: no limit)")
}

func (f *filter) check() error {
	if f.limit < 0 {
		return cli.Usagef("--limit is to be 0 or more, found %d", f.limit)
	}
	return nil
}

// forType returns the filter for a type.
func (f *filter) forType(typ storage.UnversionedType) *key.Filter {
	return &key.Filter{Group: typ.Group, Kind: typ.Kind, Partition: f.partition, Namespace: f.namespace, NamePrefix: f.prefix}
}
