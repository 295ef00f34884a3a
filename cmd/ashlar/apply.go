package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/manifest"
)

func applyCommand(a *cli.App) *cobra.Command {
	var where tenancy
	var files []string
	cmd := &cobra.Command{
		Use:   "apply -f FILE|DIR|-",
		Short: "Create or update resources from YAML or JSON",
		Long: `Create or update resources from YAML or JSON: a file, all .yaml, .yml and .json files of a folder and those below, or standard
input. Each prints created, updated or unchanged, in the order of the files.

A document is a resource as get -o json shows it, or an object as Kubernetes writes it. Of the latter, apiVersion and kind become
the type (apps/v1: group apps, group version v1; v1: group core), metadata.namespace the namespace, labels and annotations
metadata under label/ and annotation/, ownerReferences the owner; all the rest is the payload, a google.protobuf.Struct.
Without a namespace it is that of -n, for every kind, and the partition is that of -p.

An owner is found by its name, among the files or in the store, and written before what it owns. If one is missing, or any
document is wrong, nothing is written. A whole number that a Struct, whose numbers are 64-bit floating point, would change is
an error: put it in quotes.

An update replaces the content, keeps the uid and the statuses, gives a new generation, and is made again when somebody else
was faster. A version in a document says which one it is to replace, a uid which resource: if something else is stored, that
is a conflict.`,
		Example: `  ashlar apply -f manifests/
  ashlar apply -f a.yaml -f b.json
  ashlar get apps/Deployment storefront -o json | jq '.data.value.spec.replicas=3' | ashlar apply -f -`,
		Args:              cli.ExactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(files) == 0 {
				return cli.Usagef("apply needs -f with a file, a folder, or - for standard input")
			}
			ctx, cancel, err := a.Context(cmd)
			if err != nil {
				return err
			}
			defer cancel()
			objects, err := readManifests(a, files, manifest.Defaults{Partition: where.partition, Namespace: where.namespace})
			if err != nil {
				return cli.Failedf("%w", err)
			}
			return a.With(ctx, func(backend storage.Backend) error {
				set, err := newSet(objects)
				if err != nil {
					return err
				}
				if err := set.findOwners(ctx, backend); err != nil {
					return err
				}
				return set.apply(ctx, backend, a.Out)
			})
		},
	}
	where.flags(cmd, cli.DefaultTenancy)
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil, "file, folder, or - for standard input; may be given several times")
	return cmd
}

func readManifests(a *cli.App, files []string, defaults manifest.Defaults) ([]*manifest.Object, error) {
	var objects []*manifest.Object
	for i, file := range files {
		if slices.Contains(files[:i], file) {
			return nil, fmt.Errorf("-f %s is given twice", file)
		}
		var read []*manifest.Object
		var err error
		if file == "-" {
			read, err = manifest.Read("standard input", a.In, defaults)
		} else {
			read, err = manifest.ReadPath(file, defaults)
		}
		if err != nil {
			return nil, err
		}
		objects = append(objects, read...)
	}
	if len(objects) == 0 {
		return nil, errors.New("there is no document to apply")
	}
	return objects, nil
}
