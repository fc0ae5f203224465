package store

import (
	"fmt"
	"strings"

	"github.com/ax-scheduler/ax/sql/migrate"
)

// updateEach updates many rows of a table in few statements, each row with values of its own.
// keys and columns name what values holds, in this order, one slice a row; set and where may use the
// values as v.<column>, and the table's own columns as t.<column>. It returns how many rows changed.
//
// One statement for hundreds of rows costs some microseconds a row; a statement for each would
// cost a round trip.
func (b *Bucket) updateEach(table string, keys, columns []string, set, where string, values [][]any) (changed int64, err error) {
	names := append(append([]string{}, keys...), columns...)
	match := make([]string, len(keys))
	for i, k := range keys {
		match[i] = "t." + k + " = v." + k
	}
	on := strings.Join(match, " AND ")
	if where != "" {
		where = " AND " + where
	}
	for start := 0; start < len(values); start += group {
		part := values[start:min(start+group, len(values))]
		args := make([]any, 0, len(part)*len(names))
		for _, row := range part {
			args = append(args, row...)
		}
		var statement string
		if b.s.dialect == migrate.SQLite {
			// SQLite knows no alias of the table in SET.
			statement = "WITH v(" + strings.Join(names, ", ") + ") AS (VALUES " + rows(len(part), len(names)) + ") UPDATE " + table + " AS t SET " + set + " FROM v WHERE " + on + where
		} else {
			first := make([]string, len(names))
			for i, n := range names {
				first[i] = "? AS " + n
			}
			// STRAIGHT_JOIN: the values lead, and the table is read by its key. Left to choose, MariaDB may
			// walk the whole table instead.
			statement = "UPDATE (SELECT " + strings.Join(first, ", ") + strings.Repeat(" UNION ALL SELECT "+marks(len(names)), len(part)-1) + ") v STRAIGHT_JOIN " + table + " t ON " + on + where + " SET " + set
		}
		res, err := b.tx.ExecContext(b.ctx, statement, args...)
		if err != nil {
			return changed, fmt.Errorf("update %s: %w", table, err)
		}
		n, err := res.RowsAffected()
		if err != nil {
			return changed, err
		}
		changed += n
	}
	return changed, nil
}
