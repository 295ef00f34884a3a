package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/resourcepb"
)

// typeCount is a line of the output of types.
type typeCount struct {
	Group string `json:"group"`
	Kind  string `json:"kind"`
	Count int    `json:"count"`
}

func typesCommand(a *cli.App) *cobra.Command {
	var f filter
	var out output
	cmd := &cobra.Command{
		Use:   "types",
		Short: "Show the types of resources and the number of each",
		Example: `  ashlar types
  ashlar types -n shop -o json`,
		Args:              cli.ExactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			return a.OnStore(cmd, cli.Existing, func(ctx context.Context, backend storage.Backend) error {
				counts, err := countTypes(ctx, backend, f)
				if err != nil {
					return fmt.Errorf("list types: %w", err)
				}
				p := newPrinter(out.format, a.Out)
				return errors.Join(p.types(counts), p.flush())
			})
		},
	}
	f.tenancy.flags(cmd, storage.Wildcard)
	out.flags(cmd)
	return cmd
}

func countTypes(ctx context.Context, backend storage.Backend, f filter) ([]typeCount, error) {
	counts := map[storage.UnversionedType]int{}
	all := storage.UnversionedType{Group: storage.Wildcard, Kind: storage.Wildcard}
	err := eachResource(ctx, backend, all, f, func(res *resourcepb.Resource) error {
		counts[storage.UnversionedTypeFrom(res.GetId().GetType())]++
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := make([]typeCount, 0, len(counts))
	for typ, n := range counts {
		out = append(out, typeCount{Group: typ.Group, Kind: typ.Kind, Count: n})
	}
	slices.SortFunc(out, func(a, b typeCount) int {
		return strings.Compare(a.Group+"\x00"+a.Kind, b.Group+"\x00"+b.Kind)
	})
	return out, nil
}

func (p *printer) types(counts []typeCount) error {
	if p.format == "table" && len(counts) > 0 {
		if err := p.row("TYPE", "COUNT"); err != nil {
			return err
		}
	}
	for _, c := range counts {
		name := cli.TypeName(&resourcepb.Type{Group: c.Group, Kind: c.Kind})
		var err error
		switch p.format {
		case "table":
			err = p.row(name, fmt.Sprint(c.Count))
		case "name":
			err = p.line([]byte(name))
		default:
			err = p.value("a type", c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
