package registry

import (
	"fmt"
	"maps"

	"github.com/ashlar-dev/storage/resourcepb"
)

// conversionFaults returns the errors in a type with a Conversion, apart from the other types.
func (t *Type) conversionFaults() (faults []string) {
	if t.Conversion.FromStored == nil || t.Conversion.ToStored == nil {
		faults = append(faults, "its Conversion has not both functions")
	}
	if t.Conversion.Stored == t.Type.GetGroupVersion() {
		faults = append(faults, "its Conversion is to its own group version")
	}
	if t.Mutate != nil || t.Validate != nil || t.MayRead != nil || t.MayWrite != nil || t.MayList != nil {
		faults = append(faults, "a type with a Conversion has no hooks: the hooks of the stored version apply")
	}
	return faults
}

// connect sets the versions of the kinds of the types with a Conversion.
func connect(types map[name]*Type, converted []name) (faults []error) {
	kinds := map[name]*versions{} // by the name of the stored type
	for _, n := range converted {
		t := types[n]
		key := name{n.group, t.Conversion.Stored, n.kind}
		stored := types[key]
		switch {
		case stored == nil || stored.Conversion != nil:
			faults = append(faults, fmt.Errorf("type %s: its Conversion needs a type %s.%s.%s without a Conversion", Name(t.Type), key.group, key.version, key.kind))
			continue
		case stored.Scope != t.Scope:
			faults = append(faults, fmt.Errorf("type %s: its scope is %v, but the stored version has %v", Name(t.Type), t.Scope, stored.Scope))
			continue
		}
		if kinds[key] == nil {
			kinds[key] = &versions{stored: stored, all: map[string]*Type{key.version: stored}}
		}
		kinds[key].all[n.version] = t
	}
	for key, v := range kinds {
		for n, t := range types {
			if n.group == key.group && n.kind == key.kind && v.all[n.version] != t {
				faults = append(faults, fmt.Errorf("type %s: it does not convert to the group version %s of the stored resources", Name(t.Type), key.version))
			}
		}
		v.shareHooks()
	}
	return faults
}

// shareHooks makes all versions use the hooks of the stored version, with resources of that version. Nothing is converted for a hook that is not set, so
// that a resource that cannot be converted can be deleted.
func (v *versions) shareHooks() {
	stored := *v.stored
	if mayRead := stored.MayRead; mayRead != nil {
		stored.MayRead = func(c Caller, id *resourcepb.ID, res *resourcepb.Resource) error {
			res, err := v.toStored(res)
			if err != nil {
				return err
			}
			if v.all[id.GetType().GetGroupVersion()] != nil {
				id = idWithType(id, stored.Type)
			}
			return mayRead(c, id, res)
		}
	}
	if mayWrite := stored.MayWrite; mayWrite != nil {
		stored.MayWrite = func(c Caller, res *resourcepb.Resource) error {
			res, err := v.toStored(res)
			if err != nil {
				return err
			}
			return mayWrite(c, res)
		}
	}
	if mayList := stored.MayList; mayList != nil {
		stored.MayList = func(c Caller, _ *resourcepb.Type, tenancy *resourcepb.Tenancy) error {
			return mayList(c, stored.Type, tenancy)
		}
	}
	for t := range maps.Values(v.all) {
		t.versions = v
		t.Mutate, t.Validate, t.MayRead, t.MayWrite, t.MayList = stored.Mutate, stored.Validate, stored.MayRead, stored.MayWrite, stored.MayList
	}
}
