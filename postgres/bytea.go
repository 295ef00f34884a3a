package postgres

import (
	"bytes"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// decodeBytea makes a connection decode bytea in both text formats. The setting bytea_output of the role, the database or a pooler's
// session selects the format. pgx decodes only one of them. Binary results, which prepared statements have, do not depend on the setting.
func decodeBytea(conn *pgx.Conn) {
	conn.TypeMap().RegisterType(&pgtype.Type{Name: "bytea", OID: pgtype.ByteaOID, Codec: byteaCodec{}})
}

// byteaCodec decodes bytea of both text formats.
type byteaCodec struct{ pgtype.ByteaCodec }

// PlanScan implements pgtype.Codec.
func (c byteaCodec) PlanScan(m *pgtype.Map, oid uint32, format int16, target any) pgtype.ScanPlan {
	plan := c.ByteaCodec.PlanScan(m, oid, format, target)
	if plan == nil || format != pgtype.TextFormatCode {
		return plan
	}
	return textByteaPlan{plan}
}

// textByteaPlan scans a text. The plan that it contains scans the format hex.
type textByteaPlan struct{ pgtype.ScanPlan }

// Scan implements pgtype.ScanPlan. A text in the format escape never begins with \x: it contains each backslash twice.
func (p textByteaPlan) Scan(text []byte, target any) error {
	if text == nil || bytes.HasPrefix(text, []byte(`\x`)) {
		return p.ScanPlan.Scan(text, target)
	}
	data, err := unescapeBytea(text)
	if err != nil {
		return err
	}
	if b, ok := target.(*[]byte); ok {
		*b = data
		return nil
	}
	return target.(pgtype.BytesScanner).ScanBytes(data)
}

var errBytea = errors.New("malformed bytea in the format escape")

// unescapeBytea decodes the format escape. There, two backslashes are one byte, and so are a backslash and three octal digits.
func unescapeBytea(text []byte) ([]byte, error) {
	data := make([]byte, 0, len(text))
	for len(text) > 0 {
		switch {
		case text[0] != '\\':
			data, text = append(data, text[0]), text[1:]
		case len(text) > 1 && text[1] == '\\':
			data, text = append(data, '\\'), text[2:]
		case len(text) > 3 && text[1] >= '0' && text[1] <= '3' && isOctal(text[2]) && isOctal(text[3]):
			data, text = append(data, (text[1]-'0')<<6|(text[2]-'0')<<3|(text[3]-'0')), text[4:]
		default:
			return nil, errBytea
		}
	}
	return data, nil
}

func isOctal(digit byte) bool { return digit >= '0' && digit <= '7' }
