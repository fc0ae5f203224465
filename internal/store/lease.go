package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
)

// Fence proves the right to change a bucket's scheduling state: this owner, at this
// epoch. It is good until another replica takes the bucket, which raises the epoch.
type Fence struct {
	Bucket int
	Owner  string
	Epoch  int64
	// Round counts how often the owner has read the bucket's rows into memory under this epoch. The
	// database knows nothing of it: it tells what was begun before such a reading from what is
	// begun after, when both may hold the same execution.
	Round uint64
}

// Bucket is a transaction under a fence. It exists only inside InBucket.
type Bucket struct {
	s   *Store
	tx  *sql.Tx
	ctx context.Context //nolint:containedctx // a Bucket lives only inside one InBucket call
	f   Fence
	// next is the next sequence of execution ids; moved when ids are taken.
	next, first int64
	cursor      int64
	moved       bool
}

// errLock is a transaction's that did not get its lease row.
var errLock = errors.New("lock")

// InBucket runs f in one transaction that holds the bucket's lease row. It returns
// ErrFenced, with nothing written, when the row says another owner or epoch, and ErrTooLong, with
// nothing written, when its time is over before its commit. A deadlock or a lock wait is tried
// again as a whole, up to three times; any other error means that nothing is known to be written
// (a commit may have reached the database without its answer: read again before assuming either).
func (s *Store) InBucket(parent context.Context, f Fence, do func(b *Bucket) error) error {
	ctx, cancel := context.WithTimeout(parent, txTimeout)
	defer cancel()
	const tries = 3
	for try := 1; ; try++ {
		ending := false // from here on the commit may have reached the database
		err := s.inTx(ctx, s.fenced, func(tx *sql.Tx) error {
			b := &Bucket{s: s, tx: tx, ctx: ctx, f: f}
			lock := " FOR UPDATE"
			if s.dialect == "sqlite" {
				lock = "" // the transaction began immediate: it holds the only write lock already
			}
			var owner string
			var epoch int64
			if err := tx.QueryRowContext(ctx, "SELECT owner, epoch, cursor_at, next_seq FROM bucket_lease WHERE bucket = ?"+lock, f.Bucket).
				Scan(&owner, &epoch, &b.cursor, &b.next); err != nil {
				return fmt.Errorf("%w bucket %d: %w", errLock, f.Bucket, err)
			}
			if fenced && (owner != f.Owner || epoch != f.Epoch) {
				return ErrFenced
			}
			b.first = b.next
			if err := do(b); err != nil {
				return err
			}
			if b.next != b.first || b.moved {
				if _, err := tx.ExecContext(ctx, "UPDATE bucket_lease SET cursor_at = ?, next_seq = ? WHERE bucket = ?", b.cursor, b.next, f.Bucket); err != nil {
					return err
				}
			}
			ending = ctx.Err() == nil
			return ctx.Err()
		})
		if err != nil && !ending && parent.Err() == nil && ctx.Err() != nil {
			return fmt.Errorf("%w: %w", ErrTooLong, err)
		}
		// A connection that had died before its first statement has written nothing.
		unused := errors.Is(err, errLock) && errors.Is(err, driver.ErrBadConn)
		if err == nil || !retryable(err) && !unused || try == tries {
			return err
		}
	}
}

// Fence is the fence this transaction runs under.
func (b *Bucket) Fence() Fence { return b.f }

// Cursor is the instant up to which every firing has its row.
func (b *Bucket) Cursor() int64 { return b.cursor }

// MoveCursor sets the cursor; it never goes back.
func (b *Bucket) MoveCursor(to int64) {
	if to > b.cursor {
		b.cursor, b.moved = to, true
	}
}

// TakeSequence hands out n sequence numbers for execution ids and returns the first.
func (b *Bucket) TakeSequence(n int) int64 {
	first := b.next
	b.next += int64(n)
	return first
}

func scanAll[T any](rows *sql.Rows) ([]T, error) {
	defer func() { _ = rows.Close() }()
	var out []T
	for rows.Next() {
		var v T
		if err := rows.Scan(&v); err != nil {
			return nil, unavailable(err)
		}
		out = append(out, v)
	}
	return out, unavailable(rows.Err())
}

// sequence takes the next id of a name inside tx.
func (s *Store) sequence(ctx context.Context, tx *sql.Tx, name string) (int64, error) {
	return s.sequenceBlock(ctx, tx, name, 1)
}

// sequenceBlock takes the next n ids of a name inside tx, and returns the first.
func (s *Store) sequenceBlock(ctx context.Context, tx *sql.Tx, name string, n int64) (int64, error) {
	if _, err := tx.ExecContext(ctx, "UPDATE ax_sequence SET next_id = next_id + ? WHERE name = ?", n, name); err != nil {
		return 0, err
	}
	var next int64
	if err := tx.QueryRowContext(ctx, "SELECT next_id FROM ax_sequence WHERE name = ?", name).Scan(&next); err != nil {
		return 0, err
	}
	return next - n, nil
}
