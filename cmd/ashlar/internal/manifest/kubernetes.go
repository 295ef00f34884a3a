package manifest

import (
	"strings"

	"github.com/ashlar-dev/storage/resourcepb"
)

const (
	// LabelPrefix is prepended to the key of a label in a resource's metadata.
	LabelPrefix = "label/"
	// AnnotationPrefix is prepended to the key of an annotation in a resource's metadata.
	AnnotationPrefix = "annotation/"
)

// listItems returns the items of a List, and nil for any other object.
func listItems(n *node) []*node {
	k, items := n.get("kind"), n.get("items")
	if k == nil || !strings.HasSuffix(k.text, "List") || items == nil || items.kind != list {
		return nil
	}
	if meta := n.get("metadata"); meta != nil && meta.get("name") != nil {
		return nil
	}
	version, single := n.get("apiVersion"), strings.TrimSuffix(k.text, "List")
	out := make([]*node, 0, len(items.items))
	for _, item := range items.items {
		// The items of a PodList may omit the fields that the list already gives.
		if item.kind == object && version != nil && single != "" && item.get("kind") == nil && item.get("apiVersion") == nil {
			filled := *item
			filled.fields = append([]field{
				{name: "apiVersion", line: item.line, value: version},
				{name: "kind", line: item.line, value: &node{kind: text, line: item.line, text: single}},
			}, item.fields...)
			item = &filled
		}
		out = append(out, item)
	}
	return out
}

// readKubernetes reads a document in the format of Kubernetes.
func readKubernetes(n *node, defaults Defaults) (*Object, error) {
	typ, err := typeOf(n)
	if err != nil {
		return nil, err
	}
	meta := n.get("metadata")
	if meta == nil {
		return nil, errAt(n.line, "metadata is missing")
	}
	if meta.kind != object {
		return nil, errAt(meta.line, "metadata must be an object, found %v", meta.kind)
	}
	name, err := requiredText(meta, "metadata", "name")
	if err != nil {
		return nil, err
	}
	tenancy := &resourcepb.Tenancy{Partition: defaults.Partition, Namespace: defaults.Namespace}
	if meta.get("namespace") != nil {
		if tenancy.Namespace, err = requiredText(meta, "metadata", "namespace"); err != nil {
			return nil, err
		}
	}
	o := &Object{Resource: &resourcepb.Resource{
		Id: &resourcepb.ID{Name: name, Type: typ, Tenancy: tenancy}, Metadata: map[string]string{},
	}}
	var rest []field
	for _, f := range meta.fields {
		switch f.name {
		case "name", "namespace":
		case "labels":
			err = o.addMetadata(LabelPrefix, "metadata.labels", f.value)
		case "annotations":
			err = o.addMetadata(AnnotationPrefix, "metadata.annotations", f.value)
		case "ownerReferences":
			err = o.setOwners(f.value, tenancy, defaults)
			if len(f.value.items) > 1 { // a resource has one owner: the payload keeps the whole list
				rest = append(rest, f)
			}
		default:
			rest = append(rest, f)
		}
		if err != nil {
			return nil, err
		}
	}
	var payload []field
	for _, f := range n.fields {
		switch f.name {
		case "apiVersion", "kind":
		case "metadata":
			if len(rest) > 0 {
				payload = append(payload, field{name: f.name, line: f.line, value: &node{kind: object, line: f.line, fields: rest}})
			}
		default:
			payload = append(payload, f)
		}
	}
	o.Resource.Data, err = pack(payload)
	return o, err
}
