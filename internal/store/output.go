package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/ax-scheduler/ax/internal/batch"
	"github.com/ax-scheduler/ax/sql/migrate"
)

// Chunk is a piece of an execution's output.
type Chunk struct {
	ExecutionID int64
	NS          int64
	Seq         int64
	Text        string
	Progress    int // -1 = unchanged
}

// ErrGap says that an output chunk does not follow the last one.
var ErrGap = errors.New("output chunk out of order")

// ErrQuota says that an execution may not write more output.
var ErrQuota = errors.New("output quota reached")

// Room is how much output may be stored.
type Room struct {
	// Execution bounds the whole output of the execution, in bytes.
	Execution int64
	// Namespace is what is left of the namespace's day, in bytes.
	Namespace int64
}

// What stands at the place where output was cut.
const (
	cutMark          = "\n[ax: output ends here: "
	cutExecution     = cutMark + "the quota of an execution (%d MiB) is reached; the rest was not kept]\n"
	cutNamespace     = cutMark + "the namespace's quota of the day is used up; the rest was not kept]\n"
	bytesPerMebibyte = 1 << 20
)

// AppendOutput stores chunks of one execution in order. It returns the next sequence number that is wanted and how many
// bytes were stored. Chunks that are stored already are passed over; ErrGap: a chunk is missing before these; ErrQuota: there
// is no room, what fitted was stored, and once a mark that says why.
func (s *Store) AppendOutput(ctx context.Context, ns, executionID int64, day int, chunks []Chunk, room Room, now int64) (next, stored int64, err error) {
	outErr := error(nil)
	err = s.inTx(ctx, s.main, func(tx *sql.Tx) error {
		outErr, stored = nil, 0
		var total int64
		lock := " FOR UPDATE"
		if s.dialect == migrate.SQLite {
			lock = ""
		}
		// The row of the execution orders two writers of the same output.
		err := tx.QueryRowContext(ctx, "SELECT output_bytes FROM execution_log WHERE id = ? AND day = ? AND ns_id = ?"+lock, executionID, day, ns).Scan(&total)
		if errors.Is(err, sql.ErrNoRows) {
			return ErrNotFound
		}
		if err != nil {
			return err
		}
		var last int64
		if err := tx.QueryRowContext(ctx, "SELECT COALESCE(MAX(seq), 0) FROM execution_output WHERE execution_id = ?", executionID).Scan(&last); err != nil {
			return err
		}
		insert := func(seq int64, text string) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO execution_output (execution_id, seq, ns_id, byte_from, byte_len, text, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)", executionID, seq, ns, total, len(text), text, now)
			total, stored, last = total+int64(len(text)), stored+int64(len(text)), seq
			return err
		}
		progress := -1
		var tail strings.Builder
		for _, c := range chunks {
			if c.Seq <= last {
				continue
			}
			if c.Seq != last+1 {
				outErr = ErrGap
				break
			}
			mark := ""
			left := room.Namespace - stored
			if left < int64(len(c.Text)) {
				mark = cutNamespace
			}
			if byExecution := room.Execution - total; byExecution < int64(len(c.Text)) && byExecution <= left {
				left, mark = byExecution, fmt.Sprintf(cutExecution, room.Execution/bytesPerMebibyte)
			}
			text := c.Text
			if mark != "" {
				outErr = ErrQuota
				full, err := s.cutBefore(ctx, tx, executionID, last)
				if err != nil {
					return err
				}
				if full {
					break
				}
				text = whole(text, int(max(left, 0))) + mark
			}
			if err := insert(c.Seq, text); err != nil {
				return err
			}
			tail.WriteString(text)
			if c.Progress >= 0 {
				progress = c.Progress
			}
			if mark != "" {
				break
			}
		}
		next = last + 1
		if stored == 0 && progress < 0 {
			return nil
		}
		set, args := "output_bytes = ?", []any{total}
		if progress >= 0 {
			set, args = set+", progress = ?", append(args, progress)
		}
		const snapshot = 4096
		if tail.Len() > 0 {
			var old string
			if tail.Len() < snapshot {
				if err := tx.QueryRowContext(ctx, "SELECT log_snapshot FROM execution_log WHERE id = ? AND day = ?", executionID, day).Scan(&old); err != nil {
					return err
				}
			}
			set, args = set+", log_snapshot = ?", append(args, lastBytes(old+tail.String(), snapshot))
		}
		_, err = tx.ExecContext(ctx, "UPDATE execution_log SET "+set+" WHERE id = ? AND day = ?", append(args, executionID, day)...)
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	return next, stored, outErr
}

// cutBefore tells whether an execution's output ends in the mark of a quota already.
func (s *Store) cutBefore(ctx context.Context, tx *sql.Tx, executionID, last int64) (bool, error) {
	var text string
	err := tx.QueryRowContext(ctx, "SELECT text FROM execution_output WHERE execution_id = ? AND seq = ?", executionID, last).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	i := strings.LastIndex(text, cutMark)
	return i >= 0 && strings.HasSuffix(text, "]\n") && !strings.Contains(text[i+len(cutMark):len(text)-1], "\n"), err
}

// whole is the beginning of text, at most n bytes, with whole lines only if there is one.
func whole(text string, n int) string {
	if len(text) <= n {
		return text
	}
	if i := strings.LastIndexByte(text[:n], '\n'); i >= 0 {
		return text[:i]
	}
	for n > 0 && text[n]&0xC0 == 0x80 {
		n--
	}
	return text[:n]
}

// lastBytes keeps the end of text, from a character's border.
func lastBytes(text string, n int) string {
	if len(text) <= n {
		return text
	}
	start := len(text) - n
	for start < len(text) && text[start]&0xC0 == 0x80 {
		start++
	}
	return text[start:]
}

// Output reads an execution's output from a byte offset, at most limit bytes and at
// least one whole chunk's rest. next is the offset to go on from.
func (s *Store) Output(ctx context.Context, ns, executionID, offset int64, limit int) (text string, next int64, err error) {
	// The index leads to the chunk that holds the offset, however much is before it.
	rows, err := s.read.QueryContext(ctx, `SELECT byte_from, text FROM execution_output
		WHERE execution_id = ? AND ns_id = ? AND byte_from >= (SELECT COALESCE(MAX(byte_from), 0) FROM execution_output WHERE execution_id = ? AND byte_from <= ?)
		AND byte_from + byte_len > ? ORDER BY byte_from, seq LIMIT 200`, executionID, ns, executionID, offset, offset)
	if err != nil {
		return "", offset, unavailable(err)
	}
	defer func() { _ = rows.Close() }()
	next = offset
	var b []byte
	for rows.Next() {
		var from int64
		var chunk string
		if err := rows.Scan(&from, &chunk); err != nil {
			return "", offset, unavailable(err)
		}
		if from > next { // cannot be: chunks have no holes
			break
		}
		part := chunk[min(next-from, int64(len(chunk))):]
		if room := limit - len(b); len(part) > room {
			if len(b) > 0 {
				break
			}
			end := room
			for end < len(part) && end > 0 && part[end]&0xC0 == 0x80 {
				end--
			}
			part = part[:end]
		}
		b = append(b, part...)
		next += int64(len(part))
		if len(b) >= limit {
			break
		}
	}
	return string(b), next, unavailable(rows.Err())
}

// OutputUsed is how much output the executions of a namespace wrote on a day.
func (s *Store) OutputUsed(ctx context.Context, ns int64, day int) (int64, error) {
	var bytes int64
	err := s.read.QueryRowContext(ctx, "SELECT bytes FROM output_usage WHERE ns_id = ? AND day = ?", ns, day).Scan(&bytes)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return bytes, unavailable(err)
}

// AddOutputUsed adds what the executions of a namespace wrote on a day.
func (s *Store) AddOutputUsed(ctx context.Context, ns int64, day int, bytes int64) error {
	add := "ON DUPLICATE KEY UPDATE bytes = bytes + VALUES(bytes)"
	if s.dialect == migrate.SQLite {
		add = "ON CONFLICT (ns_id, day) DO UPDATE SET bytes = bytes + excluded.bytes"
	}
	_, err := s.main.ExecContext(ctx, "INSERT INTO output_usage (ns_id, day, bytes) VALUES (?, ?, ?) "+add, ns, day, bytes)
	return unavailable(err)
}

// ForgetOutputUsed forgets the days before one.
func (s *Store) ForgetOutputUsed(ctx context.Context, day int) error {
	_, err := s.main.ExecContext(ctx, "DELETE FROM output_usage WHERE day < ?", day)
	return unavailable(err)
}

// DropOutput deletes the output of executions whose day is before beforeDay, in steps of a few thousand chunks. What
// execution_log keeps of its end stays.
func (s *Store) DropOutput(ctx context.Context, beforeDay int) (int64, error) {
	limit := batch.ExecutionID(beforeDay, 0, 0)
	var total int64
	for ctx.Err() == nil {
		var to sql.NullInt64
		if err := s.main.QueryRowContext(ctx, "SELECT MAX(execution_id) FROM (SELECT execution_id FROM execution_output WHERE execution_id < ? ORDER BY execution_id LIMIT 2000) x", limit).Scan(&to); err != nil {
			return total, unavailable(err)
		}
		if !to.Valid {
			return total, nil
		}
		res, err := s.main.ExecContext(ctx, "DELETE FROM execution_output WHERE execution_id <= ?", to.Int64)
		if err != nil {
			return total, unavailable(err)
		}
		n, _ := res.RowsAffected()
		total += n
	}
	return total, ctx.Err()
}
