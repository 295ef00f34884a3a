package conformance

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{storage.ErrInvalid}, args...)...)
}

func checkConsistency(c storage.ReadConsistency) error {
	if c != eventual && c != strong {
		return invalid("consistency %v", c)
	}
	return nil
}

func checkPart(field, text string, empty bool) error {
	if !utf8.ValidString(text) || strings.Contains(text, "\x00") || len(text) > 255 || text == "" && !empty || text == storage.Wildcard {
		return invalid("%s %q", field, text)
	}
	return nil
}

func checkID(field string, id *resourcepb.ID, uid bool) error {
	if id == nil || id.Type == nil || id.Tenancy == nil {
		return invalid("%s, its type or its tenancy is nil", field)
	}
	if !utf8.ValidString(id.Type.GroupVersion) {
		return invalid("%s's group version", field)
	}
	return errors.Join(checkPart("group", id.Type.Group, false), checkPart("kind", id.Type.Kind, false),
		checkPart("partition", id.Tenancy.Partition, true), checkPart("namespace", id.Tenancy.Namespace, true),
		checkPart("name", id.Name, false), checkPart("uid", id.Uid, !uid))
}

func checkFilter(typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) error {
	if tenancy == nil || typ.Group == storage.Wildcard && typ.Kind != storage.Wildcard {
		return invalid("tenancy or type")
	}
	var problems []error
	for field, text := range map[string]string{"group": typ.Group, "kind": typ.Kind, "partition": tenancy.Partition, "namespace": tenancy.Namespace} {
		if text != storage.Wildcard {
			problems = append(problems, checkPart(field, text, field == "partition" || field == "namespace"))
		}
	}
	if prefix != storage.Wildcard {
		problems = append(problems, checkPart("prefix", prefix, true))
	}
	return errors.Join(problems...)
}

func checkOps(ops []storage.Op, most int) error {
	if len(ops) > most {
		return fmt.Errorf("%w: %d operations, at most %d", storage.ErrTooLarge, len(ops), most)
	}
	total := 0
	var keys []string
	for i, op := range ops {
		var err error
		switch {
		case op.Present && op.Delete == nil:
			err = invalid("presence is demanded of what is to be deleted")
		case op.Write != nil && op.Delete == nil && op.Check == nil && op.Version == "":
			res := op.Write
			err = checkID("id", res.Id, true)
			if res.Owner != nil {
				if bad := checkID("owner", res.Owner, true); bad != nil {
					err = fmt.Errorf("owner: %w", bad)
				}
			}
			if _, bad := proto.Marshal(res); bad != nil {
				err = errors.Join(err, invalid("text: %v", bad))
			}
			bare := clone(res)
			bare.Version = ""
			size := proto.Size(bare)
			if total += size; err == nil && size > 1<<20 {
				err = fmt.Errorf("%w: %d bytes, at most %d", storage.ErrTooLarge, size, 1<<20)
			}
		case op.Delete != nil && op.Write == nil && op.Check == nil:
			err = checkID("id", op.Delete, op.Present)
		case op.Check != nil && op.Write == nil && op.Delete == nil:
			err = checkID("id", op.Check, op.Version != "")
		default:
			err = invalid("an operation is one of Write, Delete and Check")
		}
		if err != nil {
			return &storage.OpError{Index: i, Err: err}
		}
		if slices.Contains(keys, keyOf(opID(op))) {
			return &storage.OpError{Index: i, Err: invalid("a second operation on one key")}
		}
		keys = append(keys, keyOf(opID(op)))
	}
	if total > 1<<20 {
		return fmt.Errorf("%w: %d bytes together, at most %d", storage.ErrTooLarge, total, 1<<20)
	}
	return nil
}
