package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/ax-scheduler/ax/sql/migrate"
)

// ErrLocked says that somebody else holds a lock.
var ErrLocked = errors.New("lock is held by somebody else")

// Lock is a lock of the database that goes away with its connection: when the process that holds it dies,
// or is silent for watchTimeout.
type Lock struct {
	conn *sql.Conn
	name string
}

// watchTimeout is after how much silence the database closes a connection that holds a Lock.
const watchTimeout = 3 * time.Second

// HasLocks tells whether the database has locks that outlive a transaction. SQLite has one process only.
func (s *Store) HasLocks() bool { return s.dialect == migrate.MySQL }

// Lock takes a lock on a connection of its own, waiting for it up to wait (whole seconds). ErrLocked: it is held by
// somebody else all the time.
func (s *Store) Lock(ctx context.Context, name string, wait time.Duration) (*Lock, error) {
	conn, err := s.watch.Conn(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	var got sql.NullInt64
	err = conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, ?)", name, int64(wait/time.Second)).Scan(&got)
	if err == nil && got.Int64 == 1 {
		return &Lock{conn, name}, nil
	}
	_ = conn.Close()
	if err != nil {
		return nil, unavailable(fmt.Errorf("lock %s: %w", name, err))
	}
	return nil, ErrLocked
}

// Held asks whether the lock is still held, which also keeps its connection alive.
func (l *Lock) Held(ctx context.Context) error {
	var mine sql.NullInt64
	if err := l.conn.QueryRowContext(ctx, "SELECT IS_USED_LOCK(?) = CONNECTION_ID()", l.name).Scan(&mine); err != nil {
		return unavailable(err)
	}
	if mine.Int64 != 1 {
		return ErrLocked
	}
	return nil
}

// Free gives the lock back by closing its connection.
func (l *Lock) Free() { _ = l.conn.Close() }
