// Package manifest reads resources from YAML and JSON documents.
//
// A document is one of two things.
//
// A resource as protojson shows it: an object with an "id". Its tenancy may be left out, and so may its uid, version,
// generation and the uid of its owner.
//
// An object of the shape that Kubernetes uses: apiVersion, kind, metadata and the rest. It becomes a resource so:
//
//	apiVersion: apps/v1               type.group "apps", type.group_version "v1"
//	apiVersion: v1                    type.group "core", type.group_version "v1"
//	kind                              type.kind
//	metadata.name                     name
//	metadata.namespace                tenancy.namespace; without one the default, whatever the kind
//	metadata.labels                   metadata "label/<key>"
//	metadata.annotations              metadata "annotation/<key>"
//	metadata.ownerReferences          owner: the one marked as controller, else the first
//	all other fields                  data, as a google.protobuf.Struct with the same names
//	all other fields of metadata      data, under "metadata"
//
// An owner is found by its name; the uid in an ownerReference is that of another system and is not looked at. It is looked
// for in the child's namespace and, because objects that belong to no namespace are kept in the default one, there too. A
// resource has one owner: where there are several references, all of them also stay in the payload, under
// metadata.ownerReferences.
//
// A List (or PodList, …) without a name stands for its items.
//
// Numbers in a Struct are 64-bit floating point. A whole number that would be changed by that (beyond ±2^53 nearly all are)
// is refused: put it in quotes. So are infinities and what is not a number. Unquoted yes, no, on and off are true and false, as in
// Kubernetes. Keys are always text, and a key that appears twice is an error.
package manifest
