package postgres

import (
	"bytes"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"
)

// escapeBytea encodes the format escape as the server does.
func escapeBytea(data []byte) (text []byte) {
	for _, b := range data {
		switch {
		case b == '\\':
			text = append(text, `\\`...)
		case b < 0x20 || b > 0x7e:
			text = append(text, '\\', '0'+b>>6, '0'+b>>3&7, '0'+b&7)
		default:
			text = append(text, b)
		}
	}
	return text
}

// TestByteaFormats scans texts of both formats into both kinds of targets.
func TestByteaFormats(t *testing.T) {
	t.Parallel()
	types := pgtype.NewMap()
	types.RegisterType(&pgtype.Type{Name: "bytea", OID: pgtype.ByteaOID, Codec: byteaCodec{}})
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for _, c := range []struct {
		text string
		want []byte
	}{
		{"", []byte{}}, {`\x`, []byte{}}, {`\x5c78`, []byte(`\x`)}, {`\\x5c78`, []byte(`\x5c78`)}, {`\000\377`, []byte{0, 255}}, {string(escapeBytea(all)), all},
	} {
		var data []byte
		var scanned pgtype.DriverBytes
		err := types.Scan(pgtype.ByteaOID, pgtype.TextFormatCode, []byte(c.text), &data)
		if err == nil {
			err = types.Scan(pgtype.ByteaOID, pgtype.TextFormatCode, []byte(c.text), &scanned)
		}
		if err != nil || data == nil || !bytes.Equal(data, c.want) || !bytes.Equal(scanned, c.want) {
			t.Errorf("%q: %q, %q, %v, expected %q", c.text, data, scanned, err, c.want)
		}
	}
	for _, text := range []string{`\`, `\4`, `\400`, `\08`, `\1a1`, `\xa`} {
		var data []byte
		if err := types.Scan(pgtype.ByteaOID, pgtype.TextFormatCode, []byte(text), &data); err == nil {
			t.Errorf("%q: %q, expected an error", text, data)
		}
	}
	data := []byte("before")
	if err := types.Scan(pgtype.ByteaOID, pgtype.TextFormatCode, nil, &data); err != nil || data != nil {
		t.Errorf("null: %q, %v", data, err)
	}
}
