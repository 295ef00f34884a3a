package manifest

import (
	"fmt"
	"strings"

	"github.com/ashlar-dev/storage/resourcepb"
)

// Defaults are the tenancy of resources that name none.
type Defaults struct {
	Partition, Namespace string
}

// Position is the location of an object in its input.
type Position struct {
	File     string
	Document int // from 1
	Line     int // from 1; 0 if unknown
}

// String returns the position for error texts.
func (w Position) String() string {
	if w.Line == 0 {
		return fmt.Sprintf("%s: document %d", w.File, w.Document)
	}
	return fmt.Sprintf("%s: document %d, line %d", w.File, w.Document, w.Line)
}

// Object is a resource that was read.
type Object struct {
	Position Position
	// Resource is the resource to write. Its uid, version and generation may be missing.
	Resource *resourcepb.Resource
	// Owners are the candidate ids of the owner, without uids, in lookup order. If there are any, Resource.Owner is not set.
	Owners []*resourcepb.ID
}

// addMetadata copies labels or annotations into the metadata of the resource.
func (o *Object) addMetadata(prefix, path string, n *node) error {
	if n.kind == null {
		return nil
	}
	if n.kind != object {
		return errAt(n.line, "%s must be an object, found %v", path, n.kind)
	}
	for _, f := range n.fields {
		if f.value.kind != text && f.value.kind != null {
			return errAt(f.value.line, "%s: %q must be text, found %v; put it in quotes", path, f.name, f.value.kind)
		}
		o.Resource.Metadata[prefix+f.name] = f.value.text
	}
	return nil
}

// setOwners sets Owners from the owner references.
func (o *Object) setOwners(n *node, tenancy *resourcepb.Tenancy, defaults Defaults) error {
	if n.kind == null || n.kind == list && len(n.items) == 0 {
		return nil
	}
	if n.kind != list {
		return errAt(n.line, "metadata.ownerReferences must be a list, found %v", n.kind)
	}
	chosen := n.items[0]
	for _, ref := range n.items {
		if ref.kind != object {
			return errAt(ref.line, "metadata.ownerReferences must contain objects, found %v", ref.kind)
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
	name, err := requiredText(chosen, "metadata.ownerReferences", "name")
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

// requiredText returns a field that must exist and be a non-empty text.
func requiredText(n *node, path, name string) (string, error) {
	full := strings.TrimPrefix(path+"."+name, ".")
	f := n.get(name)
	switch {
	case f == nil:
		return "", errAt(n.line, "%s is missing", full)
	case f.kind != text:
		return "", errAt(f.line, "%s must be text, found %v; put it in quotes", full, f.kind)
	case f.text == "":
		return "", errAt(f.line, "%s is empty", full)
	}
	return f.text, nil
}

// typeOf reads apiVersion and kind of an object or of a reference.
func typeOf(n *node) (*resourcepb.Type, error) {
	version, err := requiredText(n, "", "apiVersion")
	if err != nil {
		return nil, err
	}
	k, err := requiredText(n, "", "kind")
	if err != nil {
		return nil, err
	}
	group, version, found := strings.Cut(version, "/")
	if !found {
		group, version = "core", group
	}
	if group == "" || version == "" || strings.Contains(version, "/") {
		return nil, errAt(n.get("apiVersion").line, "apiVersion must be GROUP/VERSION, or VERSION alone for the core group, found %q",
			n.get("apiVersion").text)
	}
	return &resourcepb.Type{Group: group, GroupVersion: version, Kind: k}, nil
}
