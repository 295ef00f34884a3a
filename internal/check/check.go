// Package check validates input before a request is sent. Its errors match storage.ErrInvalid or storage.ErrTooLarge and name the
// field.
package check

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// MaxPart is the maximum size of a part of a key, and of a uid, in bytes.
const MaxPart = 255

// MaxSize is the maximum size of a resource without its version, in bytes, on every backend.
const MaxSize = 1 << 20

// MaxTTL is the maximum time to live of a resource.
const MaxTTL = 10 * 365 * 24 * time.Hour

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", storage.ErrInvalid, fmt.Sprintf(format, args...))
}

// Consistency refuses unknown values.
func Consistency(c storage.ReadConsistency) error {
	if c != storage.EventualConsistency && c != storage.StrongConsistency {
		return invalid("unknown consistency %v, expected eventual or strong", c)
	}
	return nil
}

// text checks one part of a key or a uid.
func text(field, s string, mayBeEmpty bool) error {
	if plain(s) && (s != "" || mayBeEmpty) {
		return nil
	}
	if s == "" && !mayBeEmpty {
		return invalid("%s is empty", field)
	}
	return legal(field, s, MaxPart)
}

// legal checks text of at most maxBytes bytes.
func legal(field, s string, maxBytes int) error {
	switch {
	case len(s) > maxBytes:
		return invalid("%s has %d bytes, expected at most %d", field, len(s), maxBytes)
	case !utf8.ValidString(s):
		return invalid("%s is not valid UTF-8", field)
	case strings.IndexByte(s, 0) >= 0:
		return invalid("%s contains a NUL byte", field)
	}
	return nil
}

// plain reports whether s is short ASCII text without NUL, like nearly all text.
func plain(s string) bool {
	if len(s) > MaxPart {
		return false
	}
	for i := range len(s) {
		if s[i]-1 >= utf8.RuneSelf-1 {
			return false
		}
	}
	return true
}

func part(field, s string, mayBeEmpty bool) error {
	if s == storage.Wildcard {
		return invalid("%s is %q, which only lists and watches may use", field, s)
	}
	return text(field, s, mayBeEmpty)
}

// ID validates an id whose uid may be empty, and returns its key. field is the name used in errors, for example "id".
func ID(field string, id *resourcepb.ID) (key.Key, error) {
	if id == nil {
		return key.Key{}, invalid("%s is nil", field)
	}
	if id.Type == nil {
		return key.Key{}, invalid("%s.type is nil", field)
	}
	if id.Tenancy == nil {
		return key.Key{}, invalid("%s.tenancy is nil", field)
	}
	k := key.Of(id)
	if id.Uid != "" && !ordinary(id.Uid) || !ordinary(k.Group) || !ordinary(k.Kind) || !ordinary(k.Name) ||
		k.Partition != "" && !ordinary(k.Partition) || k.Namespace != "" && !ordinary(k.Namespace) || !plain(id.Type.GroupVersion) {
		return k, parts(field, id)
	}
	return k, nil
}

// ordinary reports by a fast check that s is a valid part. Other valid parts exist.
func ordinary(s string) bool { return s != "" && s != storage.Wildcard && plain(s) }

// parts validates an id field by field, after the fast check failed.
func parts(field string, id *resourcepb.ID) error {
	for _, p := range []struct {
		field, value string
		mayBeEmpty   bool
	}{
		{".uid", id.Uid, true},
		{".type.group", id.Type.Group, false},
		{".type.kind", id.Type.Kind, false},
		{".tenancy.partition", id.Tenancy.Partition, true},
		{".tenancy.namespace", id.Tenancy.Namespace, true},
		{".name", id.Name, false},
	} {
		if err := part(field+p.field, p.value, p.mayBeEmpty); err != nil {
			return err
		}
	}
	return groupVersion(field+".type.group_version", id.Type.GroupVersion)
}

// groupVersion validates a group version: any UTF-8 text, also empty.
func groupVersion(field, s string) error {
	if !utf8.ValidString(s) {
		return invalid("%s is not valid UTF-8", field)
	}
	return nil
}

// IDWithUid validates an id that must have a uid, and returns its key.
func IDWithUid(field string, id *resourcepb.ID) (key.Key, error) {
	k, err := ID(field, id)
	if err == nil && id.Uid == "" {
		err = invalid("%s.uid is empty", field)
	}
	return k, err
}

// Resource validates a resource to write and returns its key. maxSize is the backend's limit; 0 selects MaxSize.
func Resource(res *resourcepb.Resource, maxSize int) (key.Key, error) {
	if res == nil {
		return key.Key{}, invalid("resource is nil")
	}
	k, err := IDWithUid("id", res.Id)
	if err != nil {
		return k, err
	}
	if res.Owner != nil {
		if _, err := IDWithUid("owner", res.Owner); err != nil {
			return k, err
		}
	}
	if err := texts(res); err != nil {
		return k, err
	}
	if err := codec.CheckUnknown(res); err != nil {
		return k, invalid("%v", err)
	}
	if fault := TTL(res.Ttl); fault != "" {
		return k, invalid("ttl is invalid: %s", fault)
	}
	if maxSize <= 0 || maxSize > MaxSize {
		maxSize = MaxSize
	}
	if n := codec.Size(res); n > maxSize {
		return k, fmt.Errorf("%w: the resource has %d bytes, expected at most %d", storage.ErrTooLarge, n, maxSize)
	}
	return k, nil
}

// TTL returns the fault of a time to live, "" for none. It may be nil.
func TTL(ttl *durationpb.Duration) string {
	d := ttl.AsDuration()
	switch {
	case ttl == nil || ttl.IsValid() && d > 0 && d <= MaxTTL:
		return ""
	case !ttl.IsValid():
		return fmt.Sprintf("expected a duration, got %d seconds and %d nanoseconds", ttl.Seconds, ttl.Nanos)
	}
	return fmt.Sprintf("expected more than 0 and at most %v, got %v", MaxTTL, d)
}

// texts refuses text outside the ids that is not UTF-8, because protobuf cannot encode it. The version may be any text: it is
// compared and not stored.
func texts(res *resourcepb.Resource) error {
	if !utf8.ValidString(res.Generation) {
		return invalid("generation is not valid UTF-8")
	}
	if !utf8.ValidString(res.Author) {
		return invalid("author is not valid UTF-8")
	}
	if !utf8.ValidString(res.Data.GetTypeUrl()) {
		return invalid("data.type_url is not valid UTF-8")
	}
	for k, v := range res.Metadata {
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return invalid("metadata[%q] is not valid UTF-8", k)
		}
	}
	for k, status := range res.Status {
		if !utf8.ValidString(k) || !utf8.ValidString(status.GetObservedGeneration()) {
			return invalid("status[%q] is not valid UTF-8", k)
		}
		for i, c := range status.GetConditions() {
			ref := c.GetResource()
			for _, s := range []string{
				c.GetType(), c.GetReason(), c.GetMessage(), ref.GetName(), ref.GetSection(),
				ref.GetType().GetGroup(), ref.GetType().GetGroupVersion(), ref.GetType().GetKind(),
				ref.GetTenancy().GetPartition(), ref.GetTenancy().GetNamespace(),
			} {
				if !utf8.ValidString(s) {
					return invalid("status[%q].conditions[%d] is not valid UTF-8", k, i)
				}
			}
		}
	}
	return nil
}

// Filter validates the arguments of a list or watch.
func Filter(typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string) (key.Filter, error) {
	if tenancy == nil {
		return key.Filter{}, invalid("tenancy is nil")
	}
	if typ.Group == storage.Wildcard && typ.Kind != storage.Wildcard {
		return key.Filter{}, invalid("type.group is %q while type.kind is %q: both or the kind alone may be wildcards", typ.Group, typ.Kind)
	}
	for _, p := range []struct {
		field, value string
		mayBeEmpty   bool
	}{
		{"type.group", typ.Group, false},
		{"type.kind", typ.Kind, false},
		{"tenancy.partition", tenancy.Partition, true},
		{"tenancy.namespace", tenancy.Namespace, true},
		{"name prefix", namePrefix, true},
	} {
		if err := text(p.field, p.value, p.mayBeEmpty); err != nil {
			return key.Filter{}, err
		}
	}
	return key.Filter{Group: typ.Group, Kind: typ.Kind, Partition: tenancy.Partition, Namespace: tenancy.Namespace, NamePrefix: namePrefix}, nil
}

// Page validates the options of a page and returns its limit.
func Page(opts storage.ListOptions, defaultLimit int) (int, error) {
	if err := Consistency(opts.Consistency); err != nil {
		return 0, err
	}
	if opts.Limit < 0 {
		return 0, invalid("limit is %d, expected 0 or more", opts.Limit)
	}
	if opts.Revision < 0 {
		return 0, invalid("revision is %d, expected 0 or more", opts.Revision)
	}
	if opts.Limit == 0 {
		return defaultLimit, nil
	}
	return opts.Limit, nil
}
