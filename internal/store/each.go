package store

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ax-scheduler/ax/sql/migrate"
)

// updateEach updates many rows of a table, each row with values of its own. keys and columns name what
// values holds, in this order, one slice a row; set and where may use the values as v.<column>, and the
// table's own columns as t.<column>. It returns how many rows changed.
//
// On MySQL one statement takes hundreds of rows: some microseconds a row, where a statement for
// each would cost a round trip. SQLite has no round trips, and a planner that walks the whole table for
// such a statement: it gets one prepared statement, executed for each row.
func (b *Bucket) updateEach(table string, keys, columns []string, set, where string, values [][]any) (changed int64, err error) {
	if len(values) == 0 {
		return 0, nil
	}
	names := slices.Concat(keys, columns)
	if where != "" {
		where = " AND " + where
	}
	match := make([]string, len(keys))
	for i, k := range keys {
		match[i] = "t." + k + " = v." + k
	}
	on := strings.Join(match, " AND ") + where
	if b.s.dialect == migrate.SQLite {
		return b.updateOneByOne("UPDATE "+table+" AS t SET "+set+" WHERE "+on, names, values)
	}
	for start := 0; start < len(values); start += group {
		part := values[start:min(start+group, len(values))]
		args := make([]any, 0, len(part)*len(names))
		for _, row := range part {
			args = append(args, row...)
		}
		first := make([]string, len(names))
		for i, n := range names {
			first[i] = "? AS " + n
		}
		// STRAIGHT_JOIN: the values lead, and the table is read by its key. Left to choose, MariaDB may
		// walk the whole table instead.
		statement := "UPDATE (SELECT " + strings.Join(first, ", ") + strings.Repeat(" UNION ALL SELECT "+marks(len(names)), len(part)-1) + ") v STRAIGHT_JOIN " + table + " t ON " + on + " SET " + set
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

// valueName is a value of the row in an updateEach.
var valueName = regexp.MustCompile(`\bv\.([a-z_]+)\b`)

func (b *Bucket) updateOneByOne(statement string, names []string, values [][]any) (changed int64, err error) {
	statement = valueName.ReplaceAllStringFunc(statement, func(name string) string {
		return "?" + strconv.Itoa(slices.Index(names, strings.TrimPrefix(name, "v."))+1)
	})
	prepared, err := b.tx.PrepareContext(b.ctx, statement)
	if err != nil {
		return 0, fmt.Errorf("prepare update: %w", err)
	}
	defer func() { _ = prepared.Close() }()
	for _, row := range values {
		res, err := prepared.ExecContext(b.ctx, row...)
		if err != nil {
			return changed, fmt.Errorf("update: %w", err)
		}
		n, err := res.RowsAffected()
		if err != nil {
			return changed, err
		}
		changed += n
	}
	return changed, nil
}
