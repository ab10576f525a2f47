package sqltx

import (
	"database/sql/driver"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// formats asks for the binary form of what database/sql has a type for, and for
// the text of anything else.
func formats() pgx.QueryResultFormatsByOID {
	f := pgx.QueryResultFormatsByOID{}
	for _, oid := range []uint32{
		pgtype.BoolOID, pgtype.ByteaOID, pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID, pgtype.Float4OID,
		pgtype.Float8OID, pgtype.DateOID, pgtype.TimestampOID, pgtype.TimestamptzOID,
	} {
		f[oid] = pgtype.BinaryFormatCode
	}
	return f
}

type rows struct {
	rows  pgx.Rows
	types *pgtype.Map
	ahead bool // the next row has been read already
	more  bool // and there is one
}

var _ driver.RowsColumnTypeDatabaseTypeName = (*rows)(nil)

func (r *rows) Columns() []string {
	fields := r.rows.FieldDescriptions()
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	return names
}

// ColumnTypeDatabaseTypeName returns the type's name in capitals, or "".
func (r *rows) ColumnTypeDatabaseTypeName(i int) string {
	if t, ok := r.types.TypeForOID(r.rows.FieldDescriptions()[i].DataTypeOID); ok {
		return strings.ToUpper(t.Name)
	}
	return ""
}

func (r *rows) Close() error {
	r.rows.Close()
	return r.rows.Err()
}

func (r *rows) Next(dest []driver.Value) error {
	more := r.more
	if !r.ahead {
		more = r.rows.Next()
	}
	r.ahead = false
	if !more {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return io.EOF
	}
	fields := r.rows.FieldDescriptions()
	for i, raw := range r.rows.RawValues() {
		var err error
		if dest[i], err = r.value(fields[i].DataTypeOID, fields[i].Format, raw); err != nil {
			return fmt.Errorf("sqltx: column %s: %w", fields[i].Name, err)
		}
	}
	return nil
}

// value makes one of database/sql's few types of a column's value.
func (r *rows) value(oid uint32, format int16, raw []byte) (driver.Value, error) {
	if raw == nil {
		return nil, nil
	}
	switch oid {
	case pgtype.BoolOID:
		return scan[bool](r, oid, format, raw)
	case pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID:
		return scan[int64](r, oid, format, raw)
	case pgtype.Float4OID, pgtype.Float8OID:
		return scan[float64](r, oid, format, raw)
	case pgtype.ByteaOID, pgtype.JSONOID, pgtype.JSONBOID, pgtype.XMLOID:
		return scan[[]byte](r, oid, format, raw)
	case pgtype.DateOID:
		return valuer[pgtype.Date](r, oid, format, raw) // infinity is a text
	case pgtype.TimestampOID:
		return valuer[pgtype.Timestamp](r, oid, format, raw)
	case pgtype.TimestamptzOID:
		return valuer[pgtype.Timestamptz](r, oid, format, raw)
	default:
		return scan[string](r, oid, format, raw)
	}
}

func scan[T any](r *rows, oid uint32, format int16, raw []byte) (driver.Value, error) {
	var v T
	err := r.types.Scan(oid, format, raw, &v)
	return v, err
}

func valuer[T driver.Valuer](r *rows, oid uint32, format int16, raw []byte) (driver.Value, error) {
	var v T
	if err := r.types.Scan(oid, format, raw, &v); err != nil {
		return nil, err
	}
	return v.Value()
}
