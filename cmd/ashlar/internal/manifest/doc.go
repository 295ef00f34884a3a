// Package manifest reads resources from YAML and JSON documents.
//
// A document has one of two forms.
//
// The first is a resource as protojson: an object with an "id". The tenancy may be omitted, and so may the uid, the version, the generation
// and the uid of the owner.
//
// The second is an object in the format of Kubernetes, with apiVersion, kind, metadata and other fields. It becomes a resource as follows:
//
//	apiVersion: apps/v1               type.group "apps", type.group_version "v1"
//	apiVersion: v1                    type.group "core", type.group_version "v1"
//	kind                              type.kind
//	metadata.name                     name
//	metadata.namespace                tenancy.namespace; if missing the default, whatever the kind
//	metadata.labels                   metadata "label/<key>"
//	metadata.annotations              metadata "annotation/<key>"
//	metadata.ownerReferences          owner: the one marked as controller, else the first
//	all other fields                  data, as a google.protobuf.Struct with the same names
//	all other fields of metadata      data, under "metadata"
//
// An owner is found by its name. The uid in an ownerReference belongs to another system and is ignored. The owner is searched in the
// child's namespace and also in the default namespace, because objects without a namespace are stored there. A resource has one owner: if
// there are several references, all of them also stay in the payload, under metadata.ownerReferences.
//
// A List (or PodList, …) without a name represents its items.
//
// Numbers in a Struct are 64-bit floating point. A whole number that would change (nearly all beyond ±2^53 would) is rejected: put it in
// quotes. Infinities and NaN are rejected as well. Unquoted yes, no, on and off are booleans, as in Kubernetes. Keys are always text, and a
// duplicate key is an error.
package manifest
