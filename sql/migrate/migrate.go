// Package migrate brings a database to the schema of this build: one set of
// numbered files per dialect, run by goose under a lock.
//
// Files only expand the schema; what an older build needs is removed a release later, so
// that two neighbouring builds can share one database during an upgrade.
package migrate

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
)

//go:embed mysql/*.sql sqlite/*.sql
var files embed.FS

// Dialects.
const (
	MySQL  = "mysql"
	SQLite = "sqlite"
)

// lockName guards a migration against a second server that starts at the same moment on the same database;
// locks are the whole database server's, so it names the database.
const lockName = "CONCAT('ax:migrate:', LEFT(SHA1(DATABASE()), 32))"

// lockFor is how long another server's migration is waited for: lockTries times lockWait seconds, each shorter than a
// connection waits for an answer.
const (
	lockTries = 12
	lockWait  = 5
)

// ErrNewer says that the database was migrated by a newer build.
var ErrNewer = errors.New("the database schema is newer than this ax-server: start the newer build, or restore the backup made before the upgrade")

// ErrHalf says that a script or a migration was stopped half-way. MySQL commits each
// statement that changes tables by itself, so nobody can tell what else is there.
var ErrHalf = errors.New("the database holds tables of ax and no word that they are complete: sql/init.sql or a first start was stopped half-way; drop the database, make it again, or restore a backup")

// Up applies what is missing and returns the version reached. On MySQL it waits up to
// 60 s for another server's migration. It is safe to call at every start. ErrHalf means that
// tables are there and their version is not; any other half-applied file is reported with its
// name.
func Up(ctx context.Context, db *sql.DB, dialect string) (int64, error) {
	if dialect == MySQL {
		conn, err := db.Conn(ctx)
		if err != nil {
			return 0, fmt.Errorf("migrate: %w", err)
		}
		defer func() { _ = conn.Close() }()
		var got sql.NullInt64
		for try := 0; try < lockTries && got.Int64 != 1; try++ {
			if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK("+lockName+", ?)", lockWait).Scan(&got); err != nil {
				return 0, fmt.Errorf("migrate: take lock: %w", err)
			}
		}
		if got.Int64 != 1 {
			return 0, errors.New("migrate: another server has been migrating this database for over 60 s")
		}
		defer func() { _, _ = conn.ExecContext(context.WithoutCancel(ctx), "SELECT RELEASE_LOCK("+lockName+")") }()
	}
	provider, err := newProvider(db, dialect)
	if err != nil {
		return 0, err
	}
	if dialect == MySQL {
		if err := refuseHalf(ctx, db); err != nil {
			return 0, err
		}
	}
	current, err := provider.GetDBVersion(ctx)
	if err != nil {
		return 0, fmt.Errorf("migrate: read version: %w", err)
	}
	sources := provider.ListSources()
	if newest := sources[len(sources)-1].Version; current > newest {
		return current, fmt.Errorf("schema version %d, this build knows %d: %w", current, newest, ErrNewer)
	}
	if _, err := provider.Up(ctx); err != nil {
		if partial, ok := errors.AsType[*goose.PartialError](err); ok {
			return current, fmt.Errorf("migrate: %s stopped half-way: %w", partial.Failed.Source.Path, err)
		}
		return current, fmt.Errorf("migrate: %w", err)
	}
	return provider.GetDBVersion(ctx)
}

// refuseHalf looks for tables without a version. The caller holds the lock, so no other
// server is at work.
func refuseHalf(ctx context.Context, db *sql.DB) error {
	count := func(query string) (n int, err error) {
		if err := db.QueryRowContext(ctx, query).Scan(&n); err != nil {
			return 0, fmt.Errorf("migrate: read tables: %w", err)
		}
		return n, nil
	}
	const named = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = "
	// ax_value is the first table of the first file.
	first, err := count(named + "'ax_value'")
	if err != nil || first == 0 {
		return err
	}
	versions, err := count(named + "'goose_db_version'")
	if err == nil && versions > 0 {
		versions, err = count("SELECT COUNT(*) FROM goose_db_version WHERE version_id > 0 AND is_applied")
	}
	if err != nil {
		return err
	}
	if versions == 0 {
		return fmt.Errorf("migrate: %w", ErrHalf)
	}
	return nil
}

func newProvider(db *sql.DB, dialect string) (*goose.Provider, error) {
	sub, err := fs.Sub(files, dialect)
	if err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	d := goose.DialectMySQL
	if dialect == SQLite {
		d = goose.DialectSQLite3
	}
	provider, err := goose.NewProvider(d, db, sub)
	if err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	return provider, nil
}

// Files returns the migration files of a dialect, for init.sql and for tests.
func Files(dialect string) (fs.FS, error) { return fs.Sub(files, dialect) }
