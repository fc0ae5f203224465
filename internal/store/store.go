// Package store is every SQL statement and every transaction of ax: one concrete Store
// for MySQL/MariaDB and SQLite.
//
// What changes scheduling state is a method of Bucket, and a Bucket exists only inside
// a transaction that holds the bucket's lease row at the right epoch (see InBucket). The
// console's plain reads and edits go through gorm; the hot statements are plain SQL.
package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/libtnb/sqlite"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/ax-scheduler/ax/internal/batch"
	"github.com/ax-scheduler/ax/sql/migrate"
)

// Errors that callers tell apart.
var (
	// ErrNotFound: there is no such row in this namespace.
	ErrNotFound = errors.New("not found")
	// ErrStale: somebody changed it meanwhile; read again.
	ErrStale = errors.New("changed meanwhile")
	// ErrExists: the name is taken.
	ErrExists = errors.New("exists already")
	// ErrTooLong: the time of a scheduling transaction was over before its commit; nothing was written.
	ErrTooLong = errors.New("the transaction took too long")
	// ErrFenced: another replica owns the bucket by now; nothing was written.
	ErrFenced = errors.New("bucket is owned by another replica")
	// ErrUnavailable: the database can not be reached or refuses writes now; nothing is known to be written.
	ErrUnavailable = errors.New("database is not available")
)

// Buckets is how many units of ownership there are; fixed at install.
const Buckets = batch.Buckets

// Limits of statements. Calls take the caller's context too; these bound what forgot one.
const (
	connectTimeout = 5 * time.Second
	ioTimeout      = 15 * time.Second
	// txTimeout bounds a scheduling transaction (requirement P20).
	txTimeout = 5 * time.Second
)

// Store is a database. It is safe for concurrent use.
type Store struct {
	dialect string
	// fenced runs the transactions that hold a bucket's lease row; sched the engines' other statements; main the
	// console's writes; read its reads. On SQLite fenced, sched and main are the one writing connection, on MySQL
	// main and read are one pool.
	fenced, sched, main, read *sql.DB
	// watch makes the connections that hold a Lock; nil on SQLite.
	watch       *sql.DB
	gw, gr      *gorm.DB
	machine     *batch.Machine
	definitions definitions
	auditKey    []byte
}

// Config says which database.
type Config struct {
	// DSN is "mysql://user:password@host:port/database" or "" for SQLite in Dir.
	DSN string
	// Dir holds ax.db when DSN is empty.
	Dir string
	// MaxOpen bounds the connections of the console pool on MySQL. Default 20. Scheduling has
	// its own 32.
	MaxOpen int
	// AuditKey authenticates the entries of the audit trail. Without it nothing that is audited can be changed.
	AuditKey []byte
}

// Open prepares the pools. It does not need the database to be there yet: Ready asks.
// A DSN that can not be understood is an error that says what is allowed.
func Open(c Config) (*Store, error) {
	open := openMySQL
	if c.DSN == "" {
		open = openSQLite
	}
	s, err := open(c)
	if err != nil {
		return nil, err
	}
	s.auditKey = c.AuditKey
	return s, nil
}

func openSQLite(c Config) (*Store, error) {
	path := filepath.Join(c.Dir, "ax.db")
	// FULL: a commit that was answered survives a power cut. immediate: a transaction that will
	// write takes the lock at BEGIN, where waiting is possible, and not at its first write.
	const pragmas = "?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=foreign_keys(0)&_pragma=temp_store(MEMORY)&_pragma=cache_size(-32000)"
	uri := "file:" + (&url.URL{Path: path}).EscapedPath() + pragmas
	writer, err := sql.Open("sqlite", uri+"&_txlock=immediate")
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	writer.SetMaxOpenConns(1)
	reader, err := sql.Open("sqlite", uri+"&_pragma=query_only(1)")
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	reader.SetMaxOpenConns(4)
	s := &Store{dialect: migrate.SQLite, fenced: writer, sched: writer, main: writer, read: reader, machine: batch.NewMachine()}
	return s.withGorm(func(db *sql.DB) gorm.Dialector { return sqlite.New(sqlite.Config{Conn: db, DriverName: "sqlite"}) })
}

func openMySQL(c Config) (*Store, error) {
	cfg, err := ParseDSN(c.DSN)
	if err != nil {
		return nil, err
	}
	maxOpen := c.MaxOpen
	if maxOpen == 0 {
		maxOpen = 20
	}
	pool := func(open, idle int, life time.Duration, implicit bool, params map[string]string) (*sql.DB, error) {
		own := cfg.Clone()
		maps.Copy(own.Params, params)
		made, err := mysql.NewConnector(own)
		if err != nil {
			return nil, fmt.Errorf("database: %w", err)
		}
		db := sql.OpenDB(connector{made, implicit})
		db.SetMaxOpenConns(open)
		db.SetMaxIdleConns(idle)
		db.SetConnMaxIdleTime(life)
		return db, nil
	}
	// A paused owner in mid-transaction would hold its lease row. The server drops the
	// session after 2 s of silence and with it the lock; idle connections are closed before that.
	fenced, err := pool(16, 16, time.Second, true, map[string]string{"wait_timeout": "2", "innodb_lock_wait_timeout": "2"})
	if err != nil {
		return nil, err
	}
	sched, err := pool(16, 16, time.Second, false, map[string]string{"wait_timeout": "2", "innodb_lock_wait_timeout": "2"})
	if err != nil {
		return nil, err
	}
	main, err := pool(maxOpen, 5, time.Minute, false, map[string]string{"innodb_lock_wait_timeout": "5"})
	if err != nil {
		return nil, err
	}
	// No connection is kept: to close it is to free its lock.
	watch, err := pool(64, -1, time.Minute, false, map[string]string{"wait_timeout": strconv.Itoa(int(watchTimeout / time.Second))})
	if err != nil {
		return nil, err
	}
	s := &Store{dialect: migrate.MySQL, fenced: fenced, sched: sched, main: main, read: main, watch: watch, machine: batch.NewMachine()}
	return s.withGorm(func(db *sql.DB) gorm.Dialector {
		return gormmysql.New(gormmysql.Config{Conn: db, SkipInitializeWithVersion: true})
	})
}

func (s *Store) withGorm(dialector func(*sql.DB) gorm.Dialector) (*Store, error) {
	open := func(db *sql.DB) (*gorm.DB, error) {
		return gorm.Open(dialector(db), &gorm.Config{
			TranslateError: true, DisableAutomaticPing: true, SkipDefaultTransaction: true,
			Logger: logger.New(log.New(io.Discard, "", 0), logger.Config{LogLevel: logger.Silent}),
		})
	}
	var err error
	if s.gw, err = open(s.main); err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	if s.gr, err = open(s.read); err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	return s, nil
}

// ParseDSN reads "mysql://user:password@host:port/database" into the driver's form with ax's
// policy: timeouts everywhere, read-only servers dropped, one statement at a time.
func ParseDSN(dsn string) (*mysql.Config, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		// url.Parse's text quotes the DSN, and with it the password.
		return nil, errors.New("database: not understood; write mysql://user:password@host:3306/ax_dispatch, with special characters in the password percent-encoded")
	}
	name := strings.TrimPrefix(u.Path, "/")
	if u.Scheme != "mysql" || u.Host == "" || name == "" || u.User == nil {
		return nil, errors.New("database: write mysql://user:password@host:3306/ax_dispatch, or leave it empty for the embedded SQLite")
	}
	if len(u.Query()) > 0 {
		return nil, errors.New("database: no options after '?' are taken; ax sets timeouts and isolation itself")
	}
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr, cfg.DBName = "tcp", u.Host, name
	if u.Port() == "" {
		cfg.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	cfg.User = u.User.Username()
	cfg.Passwd, _ = u.User.Password()
	cfg.Timeout, cfg.ReadTimeout, cfg.WriteTimeout = connectTimeout, ioTimeout, ioTimeout
	cfg.RejectReadOnly = true
	cfg.InterpolateParams = true
	cfg.Collation = "utf8mb4_bin"
	cfg.Logger = log.New(io.Discard, "", 0)
	cfg.Params = map[string]string{
		"sql_mode": "'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO'",
	}
	return cfg, nil
}

// Dialect is "mysql" or "sqlite".
func (s *Store) Dialect() string { return s.dialect }

// Close closes the pools.
func (s *Store) Close() error {
	err := s.sched.Close()
	if s.fenced != s.sched {
		err = errors.Join(err, s.fenced.Close())
	}
	if s.main != s.sched {
		err = errors.Join(err, s.main.Close())
	}
	if s.read != s.main {
		err = errors.Join(err, s.read.Close())
	}
	if s.watch != nil {
		err = errors.Join(err, s.watch.Close())
	}
	return err
}

// Ready asks whether the database answers and takes writes.
func (s *Store) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if s.dialect == migrate.SQLite {
		return unavailable(s.read.PingContext(ctx))
	}
	var readOnly int
	if err := s.main.QueryRowContext(ctx, "SELECT @@global.read_only").Scan(&readOnly); err != nil {
		return unavailable(err)
	}
	if readOnly != 0 {
		return fmt.Errorf("%w: the server is read-only", ErrUnavailable)
	}
	return nil
}

// Migrate brings the schema up to date.
func (s *Store) Migrate(ctx context.Context) error {
	if s.dialect == migrate.MySQL {
		if err := s.refuseMultiPrimary(ctx); err != nil {
			return err
		}
	}
	if _, err := migrate.Up(ctx, s.main, s.dialect); err != nil {
		return unavailable(err)
	}
	var leases int
	if err := s.main.QueryRowContext(ctx, "SELECT COUNT(*) FROM bucket_lease").Scan(&leases); err != nil {
		return unavailable(err)
	}
	if leases != Buckets {
		return fmt.Errorf("%w: it has %d of %d", ErrLeasesGone, leases, Buckets)
	}
	return nil
}

// ErrLeasesGone refuses a database whose lease rows somebody has deleted: they are the fence, and the sequence of execution
// ids goes on from them, so they can not be made up.
var ErrLeasesGone = errors.New("the table bucket_lease has lost rows, without which nothing keeps two servers from doing the same work; restore it from a backup, or start with an empty database")

// ErrMultiPrimary refuses Galera and group replication with several primaries: they certify commits after the
// fact and lose some, so a lease row there fences nothing.
var ErrMultiPrimary = errors.New("this database is a cluster with several primaries; ax needs one primary, since such a cluster can lose a commit that was answered: " +
	"use a single primary with replicas (group replication: group_replication_single_primary_mode=ON), or one server of the cluster taken out of it (Galera: wsrep_on=OFF)")

func (s *Store) refuseMultiPrimary(ctx context.Context) error {
	rows, err := s.main.QueryContext(ctx, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('wsrep_on', 'group_replication_group_name', 'group_replication_single_primary_mode')")
	if err != nil {
		return unavailable(err)
	}
	defer func() { _ = rows.Close() }()
	is := map[string]string{}
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return unavailable(err)
		}
		is[strings.ToLower(name)] = value
	}
	if err := rows.Err(); err != nil {
		return unavailable(err)
	}
	if multiPrimary(is) {
		return ErrMultiPrimary
	}
	return nil
}

// multiPrimary tells it from the database's variables.
func multiPrimary(is map[string]string) bool {
	return strings.EqualFold(is["wsrep_on"], "ON") || is["group_replication_group_name"] != "" && strings.EqualFold(is["group_replication_single_primary_mode"], "OFF")
}

// Now is the database's clock. On SQLite, which lives in this process, it is the host's.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	if s.dialect == migrate.SQLite {
		return time.Now(), nil
	}
	var micros int64
	// UNIX_TIMESTAMP of a TIMESTAMP does not depend on the session's zone.
	if err := s.main.QueryRowContext(ctx, "SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)").Scan(&micros); err != nil {
		return time.Time{}, unavailable(err)
	}
	return time.UnixMicro(micros), nil
}

// nowExpr is the database's clock in milliseconds, inside a statement.
func (s *Store) nowExpr() string {
	if s.dialect == migrate.SQLite {
		return "CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)"
	}
	return "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)"
}

// orIgnore completes an INSERT so that an existing key is left alone, without hiding
// other errors as INSERT IGNORE would.
func (s *Store) orIgnore(key string) string {
	if s.dialect == migrate.SQLite {
		return " ON CONFLICT DO NOTHING"
	}
	return " ON DUPLICATE KEY UPDATE " + key + " = " + key
}

// unavailable marks errors of the connection, so that callers can tell "try again
// later" from "this is wrong".
func unavailable(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	if my, ok := errors.AsType[*mysql.MySQLError](err); ok {
		switch my.Number {
		case 1040, 1053, 1077, 1158, 1159, 1160, 1161, 1203, 1226, 1290, 1792, 1836, 3024, 1205, 1213, 1927:
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		return err
	}
	var netErr net.Error
	if errors.As(err, &netErr) || errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, io.EOF) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, sql.ErrConnDone) {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if text := err.Error(); strings.Contains(text, "SQLITE_BUSY") || strings.Contains(text, "SQLITE_FULL") || strings.Contains(text, "SQLITE_READONLY") || strings.Contains(text, "SQLITE_IOERR") || strings.Contains(text, "bad connection") {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}

// retryable tells whether the whole transaction may be run again: the database rolled
// it back by itself.
func retryable(err error) bool {
	var my *mysql.MySQLError
	return errors.As(err, &my) && (my.Number == 1213 || my.Number == 1205)
}

// duplicate tells whether err is a unique key's refusal.
func duplicate(err error) bool {
	if my, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return my.Number == 1062
	}
	return errors.Is(err, gorm.ErrDuplicatedKey) || (err != nil && (strings.Contains(err.Error(), "UNIQUE constraint failed") || strings.Contains(err.Error(), "(1555)") || strings.Contains(err.Error(), "(2067)")))
}

// TimedID makes an id that sorts by time and is unique without asking anybody: 41 bits of
// milliseconds, 22 of chance.
func TimedID(ms int64) int64 {
	var b [4]byte
	_, _ = rand.Read(b[:])
	return ms<<timedBits | int64(binary.BigEndian.Uint32(b[:])&(1<<timedBits-1))
}

const timedBits = 22

// marks is "?,?,?" for n parameters.
func marks(n int) string {
	if n <= 0 {
		return ""
	}
	return strings.Repeat("?,", n-1) + "?"
}

// rows is "(?,?),(?,?)" for n rows of width columns.
func rows(n, width int) string {
	one := "(" + marks(width) + ")"
	return strings.Repeat(one+",", n-1) + one
}

func anys[T any](values []T) []any {
	out := make([]any, len(values))
	for i, v := range values {
		out[i] = v
	}
	return out
}

// inTx runs f in a transaction of db. The isolation level is READ COMMITTED on MySQL;
// SQLite has only one.
func (s *Store) inTx(ctx context.Context, db *sql.DB, f func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil) // read committed: see connector
	if err != nil {
		return unavailable(err)
	}
	if err := f(tx); err != nil {
		_ = tx.Rollback()
		return unavailable(err)
	}
	return unavailable(tx.Commit())
}
