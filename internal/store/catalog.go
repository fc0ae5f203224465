package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"gorm.io/gorm"
)

// Namespace is a tenant.
type Namespace struct {
	ID          int64 `gorm:"primaryKey;autoIncrement:false"`
	Name        string
	DisplayName string
	Bucket      int
	Egress      string // JSON list of "CIDR:ports"
	Version     int64
	CreatedAt   int64 `gorm:"autoCreateTime:false"`
}

// TableName is gorm's.
func (Namespace) TableName() string { return "namespace" }

// App is a group of executors with one key and one protocol.
type App struct {
	ID        int64 `gorm:"primaryKey;autoIncrement:false"`
	NSID      int64 `gorm:"column:ns_id"`
	Name      string
	Protocol  string
	DrainRate float64
	Version   int64
	CreatedAt int64 `gorm:"autoCreateTime:false"`
}

// TableName is gorm's.
func (App) TableName() string { return "app" }

// AppKey is a key of an app, sealed under the master key.
type AppKey struct {
	ID        int64 `gorm:"primaryKey;autoIncrement:false"`
	NSID      int64 `gorm:"column:ns_id"`
	AppID     int64
	SealedKey string
	CreatedAt int64 `gorm:"autoCreateTime:false"`
	NotAfter  int64
}

// TableName is gorm's.
func (AppKey) TableName() string { return "app_key" }

// Namespaces lists all tenants by name.
func (s *Store) Namespaces(ctx context.Context) ([]Namespace, error) {
	var out []Namespace
	err := s.gr.WithContext(ctx).Order("name").Find(&out).Error
	return out, unavailable(err)
}

// NamespaceByName finds a tenant.
func (s *Store) NamespaceByName(ctx context.Context, name string) (Namespace, error) {
	var n Namespace
	err := s.gr.WithContext(ctx).Where("name = ?", name).Take(&n).Error
	return n, mapNotFound(err)
}

// CreateNamespace makes a tenant in the bucket that holds the fewest. ErrExists: the name is taken.
func (s *Store) CreateNamespace(ctx context.Context, n *Namespace, entry *AuditEntry) error {
	return s.inTx(ctx, s.main, func(tx *sql.Tx) error {
		id, err := s.sequence(ctx, tx, "namespace")
		if err != nil {
			return fmt.Errorf("namespace id: %w", err)
		}
		n.ID, n.Version = id, 1
		if err := tx.QueryRowContext(ctx, "SELECT l.bucket FROM bucket_lease l LEFT JOIN namespace n ON n.bucket = l.bucket GROUP BY l.bucket ORDER BY COUNT(n.id), l.bucket LIMIT 1").Scan(&n.Bucket); err != nil {
			return fmt.Errorf("choose bucket: %w", err)
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO namespace (id, name, display_name, bucket, egress, version, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)", n.ID, n.Name, n.DisplayName, n.Bucket, n.Egress, n.Version, n.CreatedAt)
		if duplicate(err) {
			return ErrExists
		}
		if err != nil {
			return fmt.Errorf("insert namespace: %w", err)
		}
		entry.NSID, entry.ObjectID, entry.ObjectName = n.ID, fmt.Sprint(n.ID), n.Name
		return s.audit(ctx, tx, entry)
	})
}

// SetEgress replaces the addresses that a namespace's executors may have.
func (s *Store) SetEgress(ctx context.Context, n Namespace, allow []string, entry *AuditEntry) error {
	raw, err := json.Marshal(allow)
	if err != nil {
		return fmt.Errorf("egress: %w", err)
	}
	return s.inTx(ctx, s.main, func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, "UPDATE namespace SET egress = ?, version = version + 1 WHERE id = ? AND version = ?", string(raw), n.ID, n.Version)
		if err != nil {
			return fmt.Errorf("set egress: %w", err)
		}
		if changed, _ := res.RowsAffected(); changed == 0 {
			return ErrStale
		}
		return s.audit(ctx, tx, entry)
	})
}

// AppCount is an app with what belongs to it.
type AppCount struct {
	App
	Jobs int64
}

// Apps lists a namespace's apps by name, with the number of their jobs.
func (s *Store) Apps(ctx context.Context, ns int64) ([]AppCount, error) {
	var out []AppCount
	err := s.gr.WithContext(ctx).Table("app").Select("app.*, (SELECT COUNT(*) FROM job_info j WHERE j.app_id = app.id) AS jobs").Where("app.ns_id = ?", ns).Order("app.name").Scan(&out).Error
	return out, unavailable(err)
}

// AppByName finds an app of a namespace.
func (s *Store) AppByName(ctx context.Context, ns int64, name string) (App, error) {
	var a App
	err := s.gr.WithContext(ctx).Where("ns_id = ? AND name = ?", ns, name).Take(&a).Error
	return a, mapNotFound(err)
}

// CreateApp makes an app with its first key, sealed by seal once the app's id is known.
func (s *Store) CreateApp(ctx context.Context, a *App, seal func(appID int64) (string, error), entry *AuditEntry) error {
	return s.inTx(ctx, s.main, func(tx *sql.Tx) error {
		var err error
		if a.ID, err = s.sequence(ctx, tx, "app"); err != nil {
			return fmt.Errorf("app id: %w", err)
		}
		keyID, err := s.sequence(ctx, tx, "app_key")
		if err != nil {
			return fmt.Errorf("key id: %w", err)
		}
		a.Version = 1
		_, err = tx.ExecContext(ctx, "INSERT INTO app (id, ns_id, name, protocol, drain_rate, version, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)", a.ID, a.NSID, a.Name, a.Protocol, a.DrainRate, a.Version, a.CreatedAt)
		if duplicate(err) {
			return ErrExists
		}
		if err != nil {
			return fmt.Errorf("insert app: %w", err)
		}
		sealed, err := seal(a.ID)
		if err != nil {
			return fmt.Errorf("seal key: %w", err)
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO app_key (id, ns_id, app_id, sealed_key, created_at, not_after) VALUES (?, ?, ?, ?, ?, 0)", keyID, a.NSID, a.ID, sealed, a.CreatedAt); err != nil {
			return fmt.Errorf("insert key: %w", err)
		}
		entry.ObjectID, entry.ObjectName = fmt.Sprint(a.ID), a.Name
		return s.audit(ctx, tx, entry)
	})
}

// KeyedApp is an app with the keys that are valid now, and its namespace.
type KeyedApp struct {
	App
	Namespace Namespace
	Keys      []AppKey
}

// KeyedApp finds an app by the names in a request's header.
func (s *Store) KeyedApp(ctx context.Context, namespace, app string, now int64) (KeyedApp, error) {
	var k KeyedApp
	ns, err := s.NamespaceByName(ctx, namespace)
	if err != nil {
		return k, err
	}
	k.Namespace = ns
	if k.App, err = s.AppByName(ctx, ns.ID, app); err != nil {
		return k, err
	}
	err = s.gr.WithContext(ctx).Where("ns_id = ? AND app_id = ? AND (not_after = 0 OR not_after > ?)", ns.ID, k.ID, now).Order("id DESC").Limit(4).Find(&k.Keys).Error
	return k, unavailable(err)
}

// Value reads a single value; ErrNotFound when it was never written.
func (s *Store) Value(ctx context.Context, name string) (string, error) {
	var v string
	err := s.read.QueryRowContext(ctx, "SELECT value FROM ax_value WHERE name = ?", name).Scan(&v)
	if errors.Is(err, sql.ErrNoRows) {
		return "", ErrNotFound
	}
	return v, unavailable(err)
}

// InitValue writes a single value if there is none, and returns what is there: two servers
// that start at once agree.
func (s *Store) InitValue(ctx context.Context, name, value string) (string, error) {
	if _, err := s.main.ExecContext(ctx, "INSERT INTO ax_value (name, value) VALUES (?, ?)"+s.orIgnore("name"), name, value); err != nil {
		return "", unavailable(err)
	}
	var v string
	err := s.main.QueryRowContext(ctx, "SELECT value FROM ax_value WHERE name = ?", name).Scan(&v)
	return v, unavailable(err)
}

// DeleteValue removes a single value; true when it was there, for values used once.
func (s *Store) DeleteValue(ctx context.Context, name, value string) (bool, error) {
	res, err := s.main.ExecContext(ctx, "DELETE FROM ax_value WHERE name = ? AND value = ?", name, value)
	if err != nil {
		return false, unavailable(err)
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

func ascii(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r > 0x7e }) < 0
}

func mapNotFound(err error) error {
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return ErrNotFound
	}
	return unavailable(err)
}

// AppNames are the names of an app and its namespace.
func (s *Store) AppNames(ctx context.Context, ns, app int64) (namespace, name string, err error) {
	err = s.read.QueryRowContext(ctx, "SELECT n.name, a.name FROM app a JOIN namespace n ON n.id = a.ns_id WHERE a.ns_id = ? AND a.id = ?", ns, app).Scan(&namespace, &name)
	if errors.Is(err, sql.ErrNoRows) {
		return "", "", ErrNotFound
	}
	return namespace, name, unavailable(err)
}

// NamespaceByID finds a tenant by id.
func (s *Store) NamespaceByID(ctx context.Context, id int64) (Namespace, error) {
	var n Namespace
	err := s.gr.WithContext(ctx).Where("id = ?", id).Take(&n).Error
	return n, mapNotFound(err)
}
