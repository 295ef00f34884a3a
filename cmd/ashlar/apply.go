package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/manifest"
)

func applyCommand(a *cli.App) *cobra.Command {
	var where tenancy
	var files []string
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "apply -f FILE|DIR|-",
		Short: "Create or update resources from YAML or JSON",
		Long: `Create or update resources from YAML or JSON: from a file, from all .yaml, .yml and .json files of a directory and its subdirectories,
or from standard input. Each prints created, updated, renewed or unchanged, in the order of the files.

A document is a resource as printed by get -o json, or an object in the format of Kubernetes. In the latter, apiVersion and kind become
the type (apps/v1: group apps, group version v1; v1: group core), metadata.namespace the namespace, labels and annotations
metadata under label/ and annotation/, and ownerReferences the owner; everything else is the payload, a google.protobuf.Struct.
Without a namespace, -n applies to every kind. The partition is that of -p.

An owner is found by its name, in the files or in the store, and written before the resources it owns. If an owner is missing, or any
document is invalid, nothing is written. A Struct stores numbers as 64-bit floating point. A whole number that would change is an
error: put it in quotes.

An update replaces the content, keeps the uid and the statuses, sets a new generation, and is retried after a concurrent change. A
version in a document names the version to replace, a uid the resource. If the stored resource has another version or uid, that is a
conflict.

With a time to live, a field ttl or --ttl, ashlar serve or ashlar expire deletes the resource after that time. Each apply starts it again, also
without another change. An apply without one removes it.`,
		Example: `  ashlar apply -f manifests/
  ashlar apply -f a.yaml -f b.json
  ashlar apply -f session.yaml --ttl 30s
  ashlar get apps/Deployment storefront -o json | jq '.data.value.spec.replicas=3' | ashlar apply -f -`,
		Args:              cli.ExactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(files) == 0 {
				return cli.Usagef("apply needs -f with a file, a directory, or - for standard input")
			}
			if cmd.Flags().Changed("ttl") && ttl <= 0 {
				return cli.Usagef("--ttl must be more than 0")
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
			for _, o := range objects {
				if ttl > 0 && o.Resource.Ttl == nil {
					o.Resource.Ttl = durationpb.New(ttl)
				}
			}
			return a.With(ctx, cli.Create, func(backend storage.Backend) error {
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
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil, "file, directory, or - for standard input; can be repeated")
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "time to live of resources whose document has none (default: they stay)")
	return cmd
}

func readManifests(a *cli.App, files []string, defaults manifest.Defaults) ([]*manifest.Object, error) {
	var objects []*manifest.Object
	for i, file := range files {
		if slices.Contains(files[:i], file) {
			return nil, fmt.Errorf("-f %s is set twice", file)
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
		return nil, errors.New("no document to apply")
	}
	return objects, nil
}
