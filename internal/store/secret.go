package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/ax-scheduler/ax/internal/job"
)

// keptSecrets is how many versions of a secret are kept: runs that were given an earlier one may still write output.
const keptSecrets = 5

// SecretVersion is a version of a secret as the database has it: sealed.
type SecretVersion struct {
	NS      int64
	Name    string
	Version int64
	Sealed  string
	Mark    string // the same for the same value of a secret
	Length  int    // in bytes
}

// Secret is what may be known of a secret.
type Secret struct {
	SecretVersion
	Description string
	UpdatedAt   int64
	UpdatedBy   string
	Jobs        int // that name it
}

const secretColumns = "c.ns_id, c.name, c.version, c.sealed, c.mark, c.length, c.description, c.updated_at, c.updated_by"

func scanSecret(row interface{ Scan(...any) error }, more ...any) (c Secret, err error) {
	err = row.Scan(append([]any{&c.NS, &c.Name, &c.Version, &c.Sealed, &c.Mark, &c.Length, &c.Description, &c.UpdatedAt, &c.UpdatedBy}, more...)...)
	return c, err
}

// newest picks of each secret the version that is in force.
const newest = "c.version = (SELECT MAX(x.version) FROM secret x WHERE x.ns_id = c.ns_id AND x.name = c.name)"

// SecretList lists a namespace's secrets by name, those after a name, up to limit.
func (s *Store) SecretList(ctx context.Context, ns int64, after string, limit int) ([]Secret, error) {
	return s.secrets(ctx, "c.ns_id = ? AND c.name > ?", limit, ns, after)
}

// Secret reads one.
func (s *Store) Secret(ctx context.Context, ns int64, name string) (Secret, error) {
	list, err := s.secrets(ctx, "c.ns_id = ? AND c.name = ?", 1, ns, name)
	if err == nil && len(list) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Secret{}, err
	}
	return list[0], nil
}

func (s *Store) secrets(ctx context.Context, where string, limit int, args ...any) ([]Secret, error) {
	rows, err := s.read.QueryContext(ctx, "SELECT "+secretColumns+", (SELECT COUNT(*) FROM secret_use u WHERE u.ns_id = c.ns_id AND u.secret = c.name AND u.active = 1) FROM secret c WHERE "+where+" AND "+newest+" ORDER BY c.name LIMIT ?", append(args, limit)...)
	if err != nil {
		return nil, unavailable(err)
	}
	defer func() { _ = rows.Close() }()
	var out []Secret
	for rows.Next() {
		var jobs int
		c, err := scanSecret(rows, &jobs)
		if err != nil {
			return nil, unavailable(err)
		}
		c.Jobs = jobs
		out = append(out, c)
	}
	return out, unavailable(rows.Err())
}

// Secrets reads the versions in force of some secrets of a namespace, by name; those that are not there are left out.
func (s *Store) Secrets(ctx context.Context, ns int64, names []string) (map[string]SecretVersion, error) {
	if len(names) == 0 {
		return nil, nil
	}
	rows, err := s.sched.QueryContext(ctx, "SELECT "+secretColumns+" FROM secret c WHERE c.ns_id = ? AND c.name IN ("+marks(len(names))+") AND "+newest, append([]any{ns}, anys(names)...)...)
	if err != nil {
		return nil, unavailable(err)
	}
	defer func() { _ = rows.Close() }()
	out := make(map[string]SecretVersion, len(names))
	for rows.Next() {
		c, err := scanSecret(rows)
		if err != nil {
			return nil, unavailable(err)
		}
		out[c.Name] = c.SecretVersion
	}
	return out, unavailable(rows.Err())
}

// SecretsUsed reads all kept versions of the secrets that jobs of a namespace name or have named, by job.
func (s *Store) SecretsUsed(ctx context.Context, ns int64, jobs []int64) (map[int64][]SecretVersion, error) {
	if len(jobs) == 0 {
		return nil, nil
	}
	rows, err := s.read.QueryContext(ctx, "SELECT "+secretColumns+", u.job_id FROM secret_use u JOIN secret c ON c.ns_id = u.ns_id AND c.name = u.secret WHERE u.ns_id = ? AND u.job_id IN ("+marks(len(jobs))+")", append([]any{ns}, anys(jobs)...)...)
	if err != nil {
		return nil, unavailable(err)
	}
	defer func() { _ = rows.Close() }()
	var out map[int64][]SecretVersion
	for rows.Next() {
		var id int64
		c, err := scanSecret(rows, &id)
		if err != nil {
			return nil, unavailable(err)
		}
		if out == nil {
			out = map[int64][]SecretVersion{}
		}
		out[id] = append(out[id], c.SecretVersion)
	}
	return out, unavailable(rows.Err())
}

// WriteSecret adds a version of a secret: the first one (ErrExists: the name is taken), or the one after that which
// is in force (ErrStale: it is not).
func (b *Bucket) WriteSecret(c Secret, entry *AuditEntry) error {
	var now sql.NullInt64
	if err := b.tx.QueryRowContext(b.ctx, "SELECT MAX(version) FROM secret WHERE ns_id = ? AND name = ?", c.NS, c.Name).Scan(&now); err != nil {
		return fmt.Errorf("read secret: %w", err)
	}
	switch {
	case c.Version == 1 && now.Valid:
		return ErrExists
	case c.Version != now.Int64+1:
		return ErrStale
	}
	if _, err := b.tx.ExecContext(b.ctx, "INSERT INTO secret (ns_id, name, version, sealed, mark, length, description, updated_at, updated_by) VALUES ("+marks(9)+")",
		c.NS, c.Name, c.Version, c.Sealed, c.Mark, c.Length, c.Description, c.UpdatedAt, cut(c.UpdatedBy, 128)); err != nil {
		return fmt.Errorf("write secret: %w", err)
	}
	if _, err := b.tx.ExecContext(b.ctx, "DELETE FROM secret WHERE ns_id = ? AND name = ? AND version <= ?", c.NS, c.Name, c.Version-keptSecrets); err != nil {
		return fmt.Errorf("forget versions of secret: %w", err)
	}
	return b.s.audit(b.ctx, b.tx, entry)
}

// SecretUsers lists the jobs that name a secret now, by id.
func (b *Bucket) SecretUsers(ns int64, name string) ([]int64, error) {
	rows, err := b.tx.QueryContext(b.ctx, "SELECT job_id FROM secret_use WHERE ns_id = ? AND secret = ? AND active = 1 ORDER BY job_id", ns, name)
	if err != nil {
		return nil, fmt.Errorf("read users of secret: %w", err)
	}
	return scanAll[int64](rows)
}

// DeleteSecret removes a secret that no job names, which the caller has asked in this transaction. ErrStale: its
// version in force is another.
func (b *Bucket) DeleteSecret(ns int64, name string, version int64, entry *AuditEntry) error {
	var now sql.NullInt64
	if err := b.tx.QueryRowContext(b.ctx, "SELECT MAX(version) FROM secret WHERE ns_id = ? AND name = ?", ns, name).Scan(&now); err != nil {
		return fmt.Errorf("read secret: %w", err)
	}
	if now.Int64 != version {
		return ErrStale
	}
	for _, statement := range []string{"DELETE FROM secret WHERE ns_id = ? AND name = ?", "DELETE FROM secret_use WHERE ns_id = ? AND secret = ?"} {
		if _, err := b.tx.ExecContext(b.ctx, statement, ns, name); err != nil {
			return fmt.Errorf("delete secret: %w", err)
		}
	}
	return b.s.audit(b.ctx, b.tx, entry)
}

// useSecrets notes which secrets a job's parameters name. What it named before stays noted: its runs may still write
// output. ErrStale: one of them was deleted since the definition was checked.
func (b *Bucket) useSecrets(j *Job) error {
	if _, err := b.tx.ExecContext(b.ctx, "UPDATE secret_use SET active = 0 WHERE job_id = ? AND active = 1", j.ID); err != nil {
		return fmt.Errorf("secrets of job %d: %w", j.ID, err)
	}
	names, _ := job.SecretNames(j.Definition.Params)
	for _, name := range names {
		var one int
		err := b.tx.QueryRowContext(b.ctx, "SELECT 1 FROM secret WHERE ns_id = ? AND name = ? LIMIT 1", j.NS, name).Scan(&one)
		if errors.Is(err, sql.ErrNoRows) {
			return ErrStale
		}
		if err != nil {
			return fmt.Errorf("secret %s: %w", name, err)
		}
		res, err := b.tx.ExecContext(b.ctx, "UPDATE secret_use SET active = 1 WHERE ns_id = ? AND secret = ? AND job_id = ?", j.NS, name, j.ID)
		if err != nil {
			return fmt.Errorf("use of secret %s: %w", name, err)
		}
		if n, _ := res.RowsAffected(); n > 0 {
			continue
		}
		if _, err := b.tx.ExecContext(b.ctx, "INSERT INTO secret_use (ns_id, secret, job_id, active) VALUES (?, ?, ?, 1)", j.NS, name, j.ID); err != nil {
			return fmt.Errorf("use of secret %s: %w", name, err)
		}
	}
	return nil
}
