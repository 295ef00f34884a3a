package manifest

import (
	"strings"

	"github.com/ashlar-dev/storage/resourcepb"
)

const (
	// LabelPrefix stands before the key of a label in a resource's metadata.
	LabelPrefix = "label/"
	// AnnotationPrefix stands before the key of an annotation in a resource's metadata.
	AnnotationPrefix = "annotation/"
)

// listItems returns the items of a List, and nil for anything else.
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
		// The items of a PodList may leave out what the list says already.
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

// kubernetes reads a document of the Kubernetes shape.
func kubernetes(n *node, defaults Defaults) (*Object, error) {
	typ, err := typeOf(n)
	if err != nil {
		return nil, err
	}
	meta := n.get("metadata")
	if meta == nil {
		return nil, errAt(n.line, "metadata is missing")
	}
	if meta.kind != object {
		return nil, errAt(meta.line, "metadata is to be an object, found %v", meta.kind)
	}
	name, err := word(meta, "metadata", "name")
	if err != nil {
		return nil, err
	}
	tenancy := &resourcepb.Tenancy{Partition: defaults.Partition, Namespace: defaults.Namespace}
	if meta.get("namespace") != nil {
		if tenancy.Namespace, err = word(meta, "metadata", "namespace"); err != nil {
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
			err = o.texts(LabelPrefix, "metadata.labels", f.value)
		case "annotations":
			err = o.texts(AnnotationPrefix, "metadata.annotations", f.value)
		case "ownerReferences":
			err = o.owner(f.value, tenancy, defaults)
			if len(f.value.items) > 1 {
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

// typeOf reads apiVersion and kind, of an object or of a reference to one.
func typeOf(n *node) (*resourcepb.Type, error) {
	version, err := word(n, "", "apiVersion")
	if err != nil {
		return nil, err
	}
	k, err := word(n, "", "kind")
	if err != nil {
		return nil, err
	}
	group, version, found := strings.Cut(version, "/")
	if !found {
		group, version = "core", group
	}
	if group == "" || version == "" || strings.Contains(version, "/") {
		return nil, errAt(n.get("apiVersion").line, "apiVersion is to be GROUP/VERSION, or VERSION alone for the core group, found %q",
			n.get("apiVersion").text)
	}
	return &resourcepb.Type{Group: group, GroupVersion: version, Kind: k}, nil
}

// word returns a field that must be there, and be text that is not empty.
func word(n *node, path, name string) (string, error) {
	full := strings.TrimPrefix(path+"."+name, ".")
	f := n.get(name)
	switch {
	case f == nil:
		return "", errAt(n.line, "%s is missing", full)
	case f.kind != text:
		return "", errAt(f.line, "%s is to be text, found %v; put it in quotes", full, f.kind)
	case f.text == "":
		return "", errAt(f.line, "%s is empty", full)
	}
	return f.text, nil
}

// texts takes labels or annotations over.
func (o *Object) texts(prefix, path string, n *node) error {
	if n.kind == null {
		return nil
	}
	if n.kind != object {
		return errAt(n.line, "%s is to be an object, found %v", path, n.kind)
	}
	for _, f := range n.fields {
		if f.value.kind != text && f.value.kind != null {
			return errAt(f.value.line, "%s: %q is to be text, found %v; put it in quotes", path, f.name, f.value.kind)
		}
		o.Resource.Metadata[prefix+f.name] = f.value.text
	}
	return nil
}

// owner finds the one owner among the references.
func (o *Object) owner(n *node, tenancy *resourcepb.Tenancy, defaults Defaults) error {
	if n.kind == null || n.kind == list && len(n.items) == 0 {
		return nil
	}
	if n.kind != list {
		return errAt(n.line, "metadata.ownerReferences is to be a list, found %v", n.kind)
	}
	chosen := n.items[0]
	for _, ref := range n.items {
		if ref.kind != object {
			return errAt(ref.line, "metadata.ownerReferences is to hold objects, found %v", ref.kind)
		}
		if c := ref.get("controller"); c != nil && c.kind == boolean && c.text == "true" {
			chosen = ref
			break
		}
	}
	typ, err := typeOf(chosen)
	if err != nil {
		return err
	}
	name, err := word(chosen, "metadata.ownerReferences", "name")
	if err != nil {
		return err
	}
	o.Owners = []*resourcepb.ID{{Name: name, Type: typ, Tenancy: tenancy}}
	if tenancy.Namespace != defaults.Namespace {
		o.Owners = append(o.Owners, &resourcepb.ID{Name: name, Type: typ, Tenancy: &resourcepb.Tenancy{
			Partition: tenancy.Partition, Namespace: defaults.Namespace,
		}})
	}
	return nil
}
