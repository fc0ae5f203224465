package store

import (
	"strings"

	"github.com/ax-scheduler/ax/internal/batch"
	"github.com/ax-scheduler/ax/sql/migrate"
)

// Batches lie in their table by due time, and executions by that of their batch: what is written now lies together,
// however many jobs there are, and what is written each second fits into little memory. Their ids begin with
// the job and would scatter them. The due time follows from the id, so whoever has the id finds the row.

// oneBatch picks one batch; its arguments are dueOf(id) and id.
const oneBatch = "due_at = ? AND batch_id = ?"

// dueOf is the due time in a batch's id; of what is no id, one that no batch has.
func dueOf(id string) int64 {
	due, ok := batch.DueOf(id)
	if !ok {
		return -1
	}
	return due
}

// inBatches picks n batches; its arguments are keysOf(ids).
func (s *Store) inBatches(n int) string { return s.inKeys("due_at", n) }

// ofBatches picks the executions of n batches; its arguments are keysOf(ids).
func (s *Store) ofBatches(n int) string { return s.inKeys("trigger_time", n) }

func (s *Store) inKeys(due string, n int) string {
	if n == 1 {
		return due + " = ? AND batch_id = ?" // a list of one pair is read by no key, on MariaDB
	}
	list := "(?, ?)" + strings.Repeat(", (?, ?)", n-1)
	if s.dialect == migrate.SQLite {
		list = "VALUES " + list // reads by the key; SQLite takes no other list of pairs
	}
	return "(" + due + ", batch_id) IN (" + list + ")"
}

func keysOf(ids []string) []any {
	out := make([]any, 0, 2*len(ids))
	for _, id := range ids {
		out = append(out, dueOf(id), id)
	}
	return out
}

// eachBatch gives batches (their ids and days) to f, those of one day together, some hundred at a time.
func eachBatch(batches map[string]int, f func(day int, part []string) error) error {
	days := map[int][]string{}
	for id, day := range batches {
		days[day] = append(days[day], id)
	}
	for day, all := range days {
		for start := 0; start < len(all); start += group {
			if err := f(day, all[start:min(start+group, len(all))]); err != nil {
				return err
			}
		}
	}
	return nil
}
