package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"time"
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

// Replica is one ax-server process.
type Replica struct {
	ID            string
	AdvertiseAddr string
	Build         string
}

// Announce makes a replica known, or known again, as alive for ttl from now by the
// database's clock.
func (s *Store) Announce(ctx context.Context, r Replica, ttl time.Duration) error {
	return s.inTx(ctx, s.main, func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, "UPDATE replica SET expires_at = "+s.nowExpr()+" + ?, advertise_addr = ? WHERE id = ?", ttl.Milliseconds(), r.AdvertiseAddr, r.ID)
		if err != nil {
			return err
		}
		if n, _ := res.RowsAffected(); n > 0 {
			return nil
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO replica (id, advertise_addr, build, started_at, expires_at) VALUES (?, ?, ?, "+s.nowExpr()+", "+s.nowExpr()+" + ?)"+s.orIgnore("id"),
			r.ID, r.AdvertiseAddr, r.Build, ttl.Milliseconds())
		return err
	})
}

// aheadLimit is how far in the future an owner's liveness may end. It is longer than any server renews
// for: what ends later was written before the database's clock went back, and would otherwise keep the
// buckets of a dead server for as long as it went back.
const aheadLimit = time.Minute

// alive is the condition that a replica r lives.
func (s *Store) alive() string {
	return "(r.expires_at >= " + s.nowExpr() + " AND r.expires_at <= " + s.nowExpr() + " + " + strconv.FormatInt(aheadLimit.Milliseconds(), 10) + ")"
}

// TakeFree takes every bucket that nobody owns or whose owner's replica row has expired,
// each with its epoch raised. It returns the fences of what it got, which may be none. A bucket
// whose row is locked by a transaction of its owner is left for the next try.
func (s *Store) TakeFree(ctx context.Context, owner string) ([]Fence, error) {
	rows, err := s.main.QueryContext(ctx, `SELECT l.bucket FROM bucket_lease l LEFT JOIN replica r ON r.id = l.owner
		WHERE l.owner = '' OR r.id IS NULL OR NOT `+s.alive()+` ORDER BY l.bucket`)
	if err != nil {
		return nil, unavailable(err)
	}
	free, err := scanAll[int](rows)
	if err != nil {
		return nil, err
	}
	if len(free) == 0 {
		return nil, nil
	}
	// All at once is one commit. A row that a transaction of a paused owner still holds would make
	// the whole wait in vain; then each is tried by itself.
	got, err := s.take(ctx, owner, free)
	if err == nil || !retryable(err) {
		return got, err
	}
	got = nil
	for _, bucket := range free {
		one, err := s.take(ctx, owner, []int{bucket})
		if err != nil && !retryable(err) {
			return got, err
		}
		got = append(got, one...)
	}
	return got, nil
}

func (s *Store) take(ctx context.Context, owner string, buckets []int) ([]Fence, error) {
	var got []Fence
	err := s.inTx(ctx, s.sched, func(tx *sql.Tx) error {
		got = nil
		before, err := tx.QueryContext(ctx, "SELECT bucket FROM bucket_lease WHERE owner = ?", owner)
		if err != nil {
			return err
		}
		had, err := scanAll[int](before)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE bucket_lease SET owner = ?, epoch = epoch + 1 WHERE bucket IN (`+marks(len(buckets))+`) AND (owner = '' OR NOT EXISTS
			(SELECT 1 FROM replica r WHERE r.id = bucket_lease.owner AND `+s.alive()+`))`, append([]any{owner}, anys(buckets)...)...); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, "SELECT bucket, epoch FROM bucket_lease WHERE owner = ? ORDER BY bucket", owner)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			f := Fence{Owner: owner}
			if err := rows.Scan(&f.Bucket, &f.Epoch); err != nil {
				return err
			}
			if !slices.Contains(had, f.Bucket) {
				got = append(got, f)
			}
		}
		return rows.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("take buckets: %w", err)
	}
	return got, nil
}

// Release gives a bucket back, so that another replica may take it at once. A bucket
// that is not owned any more is no error.
func (s *Store) Release(ctx context.Context, f Fence) error {
	_, err := s.main.ExecContext(ctx, "UPDATE bucket_lease SET owner = '' WHERE bucket = ? AND owner = ? AND epoch = ?", f.Bucket, f.Owner, f.Epoch)
	return unavailable(err)
}

// Leave removes a replica's row.
func (s *Store) Leave(ctx context.Context, id string) error {
	_, err := s.main.ExecContext(ctx, "DELETE FROM replica WHERE id = ?", id)
	return unavailable(err)
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

// InBucket runs f in one transaction that holds the bucket's lease row. It returns
// ErrFenced, with nothing written, when the row says another owner or epoch. A deadlock or a
// lock wait is tried again as a whole, up to three times; any other error means that nothing
// is known to be written (a commit may have reached the database without its answer: read again
// before assuming either).
func (s *Store) InBucket(ctx context.Context, f Fence, do func(b *Bucket) error) error {
	ctx, cancel := context.WithTimeout(ctx, txTimeout)
	defer cancel()
	const tries = 3
	for try := 1; ; try++ {
		err := s.inTx(ctx, s.sched, func(tx *sql.Tx) error {
			b := &Bucket{s: s, tx: tx, ctx: ctx, f: f}
			lock := " FOR UPDATE"
			if s.dialect == "sqlite" {
				lock = "" // the transaction began immediate: it holds the only write lock already
			}
			var owner string
			var epoch int64
			if err := tx.QueryRowContext(ctx, "SELECT owner, epoch, cursor_at, next_seq FROM bucket_lease WHERE bucket = ?"+lock, f.Bucket).
				Scan(&owner, &epoch, &b.cursor, &b.next); err != nil {
				return fmt.Errorf("lock bucket %d: %w", f.Bucket, err)
			}
			if owner != f.Owner || epoch != f.Epoch {
				return ErrFenced
			}
			b.first = b.next
			if err := do(b); err != nil {
				return err
			}
			if b.next == b.first && !b.moved {
				return nil
			}
			_, err := tx.ExecContext(ctx, "UPDATE bucket_lease SET cursor_at = ?, next_seq = ? WHERE bucket = ?", b.cursor, b.next, f.Bucket)
			return err
		})
		if err == nil || !retryable(err) || try == tries {
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
	if _, err := tx.ExecContext(ctx, "UPDATE ax_sequence SET next_id = next_id + 1 WHERE name = ?", name); err != nil {
		return 0, err
	}
	var next int64
	if err := tx.QueryRowContext(ctx, "SELECT next_id FROM ax_sequence WHERE name = ?", name).Scan(&next); err != nil {
		return 0, err
	}
	return next - 1, nil
}

// ForgetReplicas removes every replica's row, so that their buckets are free at once: for an
// embedded database whose only process starts.
func (s *Store) ForgetReplicas(ctx context.Context) error {
	_, err := s.main.ExecContext(ctx, "DELETE FROM replica")
	return unavailable(err)
}
