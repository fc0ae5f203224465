package store

import (
	"context"
	"errors"
)

// InboxRow is a message of an executor that another replica than its bucket's owner has taken: durable, and
// to be applied by the owner.
type InboxRow struct {
	Bucket    int
	ID        int64
	Kind      string
	Key       string
	Body      []byte
	CreatedAt int64
}

// inboxLimit bounds what may wait in the inbox of one bucket.
const inboxLimit = 20_000

// ErrInboxFull says that too much waits for the owner of a bucket.
var ErrInboxFull = errors.New("too much waits for the owner of the bucket")

// PutInbox keeps a message for the owner of a bucket. One with the same kind and key is replaced.
func (s *Store) PutInbox(ctx context.Context, m InboxRow) error {
	var waiting int
	if err := s.main.QueryRowContext(ctx, "SELECT COUNT(*) FROM bucket_inbox WHERE bucket = ?", m.Bucket).Scan(&waiting); err != nil {
		return unavailable(err)
	}
	if waiting >= inboxLimit {
		return ErrInboxFull
	}
	up := " ON DUPLICATE KEY UPDATE id = VALUES(id), body = VALUES(body), created_at = VALUES(created_at)"
	if s.dialect == "sqlite" {
		up = " ON CONFLICT (bucket, kind, inbox_key) DO UPDATE SET id = excluded.id, body = excluded.body, created_at = excluded.created_at"
	}
	_, err := s.main.ExecContext(ctx, "INSERT INTO bucket_inbox (bucket, id, kind, inbox_key, body, created_at) VALUES (?, ?, ?, ?, ?, ?)"+up,
		m.Bucket, TimedID(m.CreatedAt), m.Kind, m.Key, string(m.Body), m.CreatedAt)
	return unavailable(err)
}

// Inbox lists what waits for the owner of some buckets, oldest first.
func (s *Store) Inbox(ctx context.Context, buckets []int, limit int) ([]InboxRow, error) {
	if len(buckets) == 0 {
		return nil, nil
	}
	rows, err := s.main.QueryContext(ctx, "SELECT bucket, id, kind, inbox_key, body, created_at FROM bucket_inbox WHERE bucket IN ("+marks(len(buckets))+") ORDER BY bucket, id LIMIT ?", append(anys(buckets), limit)...)
	if err != nil {
		return nil, unavailable(err)
	}
	defer func() { _ = rows.Close() }()
	var out []InboxRow
	for rows.Next() {
		var m InboxRow
		if err := rows.Scan(&m.Bucket, &m.ID, &m.Kind, &m.Key, &m.Body, &m.CreatedAt); err != nil {
			return nil, unavailable(err)
		}
		out = append(out, m)
	}
	return out, unavailable(rows.Err())
}

// TakeInbox deletes a message that was applied. One that was replaced meanwhile stays.
func (s *Store) TakeInbox(ctx context.Context, m InboxRow) error {
	_, err := s.main.ExecContext(ctx, "DELETE FROM bucket_inbox WHERE bucket = ? AND id = ?", m.Bucket, m.ID)
	return unavailable(err)
}
