package main

import (
	"bytes"
	"context"
	"database/sql"
	"os"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql" // the databases that are compared
	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/internal/storetest"
	"github.com/ax-scheduler/ax/sql/migrate"
)

func TestTheFileIsTheSumOfTheMigrations(t *testing.T) {
	var made bytes.Buffer
	require.NoError(t, write(&made))
	kept, err := os.ReadFile("../init.sql")
	require.NoError(t, err)
	require.Equal(t, string(kept), made.String(), "make generate writes sql/init.sql anew")
}

// open connects to a database made by storetest, as a DBA's client would.
func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	cfg, err := store.ParseDSN(dsn)
	require.NoError(t, err)
	db, err := sql.Open("mysql", cfg.FormatDSN())
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// statements are those of init.sql without the two that make and choose the database: a test
// has one of its own name.
func statements(t *testing.T) []string {
	t.Helper()
	raw, err := os.ReadFile("../init.sql")
	require.NoError(t, err)
	var text strings.Builder
	for line := range strings.Lines(string(raw)) {
		if !strings.HasPrefix(line, "--") {
			text.WriteString(line)
		}
	}
	var out []string
	for one := range strings.SplitSeq(text.String(), ";\n") {
		one = strings.TrimSpace(one)
		if one != "" && !strings.HasPrefix(one, "CREATE DATABASE") && !strings.HasPrefix(one, "USE ") {
			out = append(out, one)
		}
	}
	return out
}

func run(t *testing.T, db *sql.DB, list []string) {
	t.Helper()
	for _, one := range list {
		_, err := db.ExecContext(t.Context(), one)
		require.NoError(t, err, one)
	}
}

func lines(t *testing.T, db *sql.DB, query string) (out []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var line string
		require.NoError(t, rows.Scan(&line))
		out = append(out, line)
	}
	require.NoError(t, rows.Err())
	return out
}

// describe is what information_schema knows of a database.
func describe(t *testing.T, db *sql.DB) []string {
	t.Helper()
	var out []string
	for _, query := range []string{
		"SELECT CONCAT_WS('|', 'table', table_name, engine, table_collation, create_options) FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY table_name",
		"SELECT CONCAT_WS('|', 'column', table_name, ordinal_position, column_name, column_type, is_nullable, IFNULL(column_default, 'none'), IFNULL(collation_name, ''), extra) FROM information_schema.columns WHERE table_schema = DATABASE() ORDER BY table_name, ordinal_position",
		"SELECT CONCAT_WS('|', 'index', table_name, index_name, seq_in_index, column_name, non_unique, index_type) FROM information_schema.statistics WHERE table_schema = DATABASE() ORDER BY table_name, index_name, seq_in_index",
		"SELECT CONCAT_WS('|', 'partition', table_name, partition_name, partition_method, partition_expression, partition_description) FROM information_schema.partitions WHERE table_schema = DATABASE() AND partition_name IS NOT NULL ORDER BY table_name, partition_ordinal_position",
		"SELECT CONCAT_WS('|', 'version', version_id, is_applied) FROM goose_db_version ORDER BY id",
		"SELECT CONCAT_WS('|', 'lease', bucket, owner, epoch, cursor_at, next_seq) FROM bucket_lease ORDER BY bucket",
		"SELECT CONCAT_WS('|', 'sequence', name, next_id) FROM ax_sequence ORDER BY name",
	} {
		out = append(out, lines(t, db, query)...)
	}
	return out
}

func TestADatabaseMadeByHandIsThatOfTheMigrations(t *testing.T) {
	byHand := open(t, storetest.Database(t))
	run(t, byHand, statements(t))
	migrated := open(t, storetest.Database(t))
	want, err := migrate.Up(t.Context(), migrated, migrate.MySQL)
	require.NoError(t, err)

	before := describe(t, byHand)
	require.Equal(t, describe(t, migrated), before)
	got, err := migrate.Up(t.Context(), byHand, migrate.MySQL)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Equal(t, before, describe(t, byHand), "a server has nothing to migrate")
}

func TestTheScriptRunTwiceStopsAtOnce(t *testing.T) {
	db := open(t, storetest.Database(t))
	list := statements(t)
	run(t, db, list)
	before := describe(t, db)
	_, err := db.ExecContext(t.Context(), list[0])
	require.ErrorContains(t, err, "already exists")
	require.Equal(t, before, describe(t, db))
}

func TestAServerSaysThatTheScriptWasStoppedHalfWay(t *testing.T) {
	list := statements(t)
	for name, stopped := range map[string]int{
		"after the first table":                     1,
		"between tables and their rows":             len(list) / 2,
		"before the version table":                  len(list) - 2,
		"between the version table and its entries": len(list) - 1,
	} {
		t.Run(name, func(t *testing.T) {
			db := open(t, storetest.Database(t))
			run(t, db, list[:stopped])
			_, err := migrate.Up(t.Context(), db, migrate.MySQL)
			require.ErrorIs(t, err, migrate.ErrHalf)
			require.ErrorContains(t, err, "drop the database")
		})
	}
}

func TestTwoServersMayMigrateAtOnce(t *testing.T) {
	dsn := storetest.Database(t)
	done := make(chan error, 2)
	for range 2 {
		db := open(t, dsn)
		go func() {
			_, err := migrate.Up(context.Background(), db, migrate.MySQL)
			done <- err
		}()
	}
	require.NoError(t, <-done)
	require.NoError(t, <-done)
}
