package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"fmt"
	"net/url"
	"time"
)

// Scratch makes a database of its own beside the one that dsn names, for measurements, and
// returns its DSN and how to drop it. The account must be allowed to.
func Scratch(ctx context.Context, dsn string) (scratch string, drop func() error, err error) {
	c, err := ParseDSN(dsn)
	if err != nil {
		return "", nil, err
	}
	var tail [4]byte
	_, _ = rand.Read(tail[:])
	name := c.DBName + "_bench_" + hex.EncodeToString(tail[:])
	c.DBName = ""
	do := func(ctx context.Context, statement string) error {
		db, err := sql.Open("mysql", c.FormatDSN())
		if err != nil {
			return err
		}
		defer func() { _ = db.Close() }()
		_, err = db.ExecContext(ctx, statement)
		return err
	}
	if err := do(ctx, "CREATE DATABASE `"+name+"` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"); err != nil {
		return "", nil, fmt.Errorf("make database %s: %w", name, err)
	}
	drop = func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return do(ctx, "DROP DATABASE `"+name+"`")
	}
	u := url.URL{Scheme: "mysql", User: url.UserPassword(c.User, c.Passwd), Host: c.Addr, Path: "/" + name}
	return u.String(), drop, nil
}

// StatesOf reads the state of every batch that was planned in [from, to), by batchId; for
// measurements. It walks the whole span.
func (s *Store) StatesOf(ctx context.Context, from, to int64, each func(batchID, state string)) error {
	rows, err := s.read.QueryContext(ctx, "SELECT batch_id, state FROM execution_batch WHERE planned_for >= ? AND planned_for < ?", from, to)
	if err != nil {
		return unavailable(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id, state string
		if err := rows.Scan(&id, &state); err != nil {
			return unavailable(err)
		}
		each(id, state)
	}
	return unavailable(rows.Err())
}
