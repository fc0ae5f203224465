package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Draining says whether a replica takes buckets.
type Draining int

// Values of Draining.
const (
	NotDraining  Draining = 0
	AskedToDrain Draining = 1 // somebody asked: it owns nothing, and goes on serving
	Leaving      Draining = 2 // it stops
)

// Replica is one ax-server process.
type Replica struct {
	ID            string
	AdvertiseAddr string
	Build         string
}

// Peer is a replica as the database knows it. Times are the database's, in milliseconds.
type Peer struct {
	Replica
	StartedAt int64
	ExpiresAt int64
	Draining  Draining
	Alive     bool
}

// Lease is who owns a bucket.
type Lease struct {
	Bucket   int
	Owner    string // "" = nobody
	Epoch    int64
	Cursor   int64
	PinnedTo string // the replica where a person wants it, "" = wherever
	TakenAt  int64
}

// Membership is who lives and who owns what.
type Membership struct {
	Now    int64
	Peers  []Peer  // by id
	Leases []Lease // by bucket
}

// Peer finds a replica.
func (m Membership) Peer(id string) (Peer, bool) {
	for _, x := range m.Peers {
		if x.ID == id {
			return x, true
		}
	}
	return Peer{}, false
}

// Alive tells whether a replica lives.
func (m Membership) Alive(id string) bool {
	x, ok := m.Peer(id)
	return ok && x.Alive
}

// Reasons of a move.
const (
	MoveFree    = "free"    // nobody owned it
	MoveExpired = "expired" // its owner was not heard of any more
	MoveBalance = "balance" // its owner had more than its share
	MoveDrain   = "drain"   // its owner takes none any more
	MoveAsked   = "asked"   // somebody wanted it there
)

// Move is one change of a bucket's owner.
type Move struct {
	ID     int64
	Bucket int
	Epoch  int64
	From   string
	To     string
	Reason string
	At     int64
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

// Membership reads who lives and who owns what.
func (s *Store) Membership(ctx context.Context) (Membership, error) {
	var m Membership
	rows, err := s.main.QueryContext(ctx, "SELECT r.id, r.advertise_addr, r.build, r.started_at, r.expires_at, r.draining, CASE WHEN "+s.alive()+" THEN 1 ELSE 0 END, "+s.nowExpr()+" FROM replica r ORDER BY r.id")
	if err != nil {
		return m, unavailable(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var x Peer
		if err := rows.Scan(&x.ID, &x.AdvertiseAddr, &x.Build, &x.StartedAt, &x.ExpiresAt, &x.Draining, &x.Alive, &m.Now); err != nil {
			return m, unavailable(err)
		}
		m.Peers = append(m.Peers, x)
	}
	if err := rows.Err(); err != nil {
		return m, unavailable(err)
	}
	leases, err := s.main.QueryContext(ctx, "SELECT bucket, owner, epoch, cursor_at, pinned_to, taken_at FROM bucket_lease ORDER BY bucket")
	if err != nil {
		return m, unavailable(err)
	}
	defer func() { _ = leases.Close() }()
	for leases.Next() {
		var x Lease
		if err := leases.Scan(&x.Bucket, &x.Owner, &x.Epoch, &x.Cursor, &x.PinnedTo, &x.TakenAt); err != nil {
			return m, unavailable(err)
		}
		m.Leases = append(m.Leases, x)
	}
	return m, unavailable(leases.Err())
}

// TakeFree takes those of the buckets, or of all when none is named, that nobody owns or whose owner
// does not live, each with its epoch raised. It returns the fences of what it got, which may be none. A bucket
// whose row is locked by a transaction of its owner is left for the next try.
func (s *Store) TakeFree(ctx context.Context, owner string, buckets ...int) ([]Fence, error) {
	if len(buckets) == 0 {
		for b := range Buckets {
			buckets = append(buckets, b)
		}
	}
	var got []Fence
	err := s.inTx(ctx, s.sched, func(tx *sql.Tx) error {
		got = nil
		// A row that a transaction of a paused owner holds is passed over: the others must not wait for it.
		lock := " FOR UPDATE SKIP LOCKED"
		if s.dialect == "sqlite" {
			lock = ""
		}
		var moves []Move
		var free []int
		take := func() error {
			rows, err := tx.QueryContext(ctx, `SELECT l.bucket, l.owner, l.epoch FROM bucket_lease l WHERE l.bucket IN (`+marks(len(buckets))+`) AND (l.owner = '' OR NOT EXISTS
				(SELECT 1 FROM replica r WHERE r.id = l.owner AND `+s.alive()+`)) ORDER BY l.bucket`+lock, anys(buckets)...)
			if err != nil {
				return err
			}
			defer func() { _ = rows.Close() }()
			for rows.Next() {
				m := Move{To: owner, Reason: MoveExpired}
				if err := rows.Scan(&m.Bucket, &m.From, &m.Epoch); err != nil {
					return err
				}
				if m.From == "" {
					m.Reason = MoveFree
				}
				m.Epoch++
				moves, free = append(moves, m), append(free, m.Bucket)
				got = append(got, Fence{Bucket: m.Bucket, Owner: owner, Epoch: m.Epoch})
			}
			return rows.Err()
		}
		if err := take(); err != nil || len(free) == 0 {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE bucket_lease SET owner = ?, epoch = epoch + 1, taken_at = "+s.nowExpr()+" WHERE bucket IN ("+marks(len(free))+")", append([]any{owner}, anys(free)...)...); err != nil {
			return err
		}
		return s.noteMoves(ctx, tx, moves)
	})
	if err != nil {
		return nil, fmt.Errorf("take buckets: %w", err)
	}
	return got, nil
}

// HandOver gives a bucket to another replica, with its epoch raised: from then on every transaction under
// f is refused. ErrFenced: it was not f's any more.
func (s *Store) HandOver(ctx context.Context, f Fence, to, reason string) error {
	return s.inTx(ctx, s.sched, func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, "UPDATE bucket_lease SET owner = ?, epoch = epoch + 1, taken_at = "+s.nowExpr()+" WHERE bucket = ? AND owner = ? AND epoch = ?", to, f.Bucket, f.Owner, f.Epoch)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return errors.Join(ErrFenced, err)
		}
		return s.noteMoves(ctx, tx, []Move{{Bucket: f.Bucket, Epoch: f.Epoch + 1, From: f.Owner, To: to, Reason: reason}})
	})
}

func (s *Store) noteMoves(ctx context.Context, tx *sql.Tx, moves []Move) error {
	const width = 6
	args := make([]any, 0, len(moves)*width)
	first := TimedID(time.Now().UnixMilli())
	for i, m := range moves {
		args = append(args, first+int64(i), m.Bucket, m.Epoch, m.From, m.To, m.Reason)
	}
	one := ",(" + marks(width) + "," + s.nowExpr() + ")"
	list := strings.Repeat(one, len(moves))[1:]
	_, err := tx.ExecContext(ctx, "INSERT INTO bucket_move (id, bucket, epoch, from_replica, to_replica, reason, moved_at) VALUES "+list, args...)
	return err
}

// Moves lists the last changes of owners, newest first.
func (s *Store) Moves(ctx context.Context, limit int) ([]Move, error) {
	rows, err := s.read.QueryContext(ctx, "SELECT id, bucket, epoch, from_replica, to_replica, reason, moved_at FROM bucket_move ORDER BY id DESC LIMIT ?", limit)
	if err != nil {
		return nil, unavailable(err)
	}
	defer func() { _ = rows.Close() }()
	var out []Move
	for rows.Next() {
		var m Move
		if err := rows.Scan(&m.ID, &m.Bucket, &m.Epoch, &m.From, &m.To, &m.Reason, &m.At); err != nil {
			return nil, unavailable(err)
		}
		out = append(out, m)
	}
	return out, unavailable(rows.Err())
}

// ForgetMoves deletes moves from before moved, and replicas that have been gone since before gone (milliseconds).
func (s *Store) ForgetMoves(ctx context.Context, moved, gone int64) error {
	_, err := s.main.ExecContext(ctx, "DELETE FROM bucket_move WHERE moved_at < ?", moved)
	if err != nil {
		return unavailable(err)
	}
	_, err = s.main.ExecContext(ctx, "DELETE FROM replica WHERE expires_at < ?", gone)
	return unavailable(err)
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

// ForgetReplicas removes every replica's row, so that their buckets are free at once: for an
// embedded database whose only process starts.
func (s *Store) ForgetReplicas(ctx context.Context) error {
	_, err := s.main.ExecContext(ctx, "DELETE FROM replica")
	return unavailable(err)
}

// Expire says that a replica does not live any more, unless it announces itself again: somebody saw it die.
// A replica that was announced since seen (its ExpiresAt then) is left alone.
func (s *Store) Expire(ctx context.Context, id string, seen int64) (bool, error) {
	res, err := s.main.ExecContext(ctx, "UPDATE replica SET expires_at = 0 WHERE id = ? AND expires_at <= ?", id, seen)
	if err != nil {
		return false, unavailable(err)
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

// SetDraining writes whether a replica takes buckets, with the audit entry when a person asked.
// ErrNotFound: there is no such replica.
func (s *Store) SetDraining(ctx context.Context, id string, d Draining, entry *AuditEntry) error {
	return s.inTx(ctx, s.main, func(tx *sql.Tx) error {
		var now Draining
		if err := tx.QueryRowContext(ctx, "SELECT draining FROM replica WHERE id = ?", id).Scan(&now); errors.Is(err, sql.ErrNoRows) {
			return ErrNotFound
		} else if err != nil {
			return err
		}
		// One that leaves does not come back.
		if _, err := tx.ExecContext(ctx, "UPDATE replica SET draining = ? WHERE id = ? AND draining <> ?", d, id, Leaving); err != nil {
			return err
		}
		if entry == nil {
			return nil
		}
		return s.audit(ctx, tx, entry)
	})
}

// Pin says at which replica a person wants a bucket; "" = wherever it is even. Its owner hands it over.
func (s *Store) Pin(ctx context.Context, bucket int, to string, entry *AuditEntry) error {
	return s.inTx(ctx, s.main, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "UPDATE bucket_lease SET pinned_to = ? WHERE bucket = ?", to, bucket); err != nil {
			return err
		}
		return s.audit(ctx, tx, entry)
	})
}
