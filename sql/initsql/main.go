// Command initsql prints sql/init.sql: the database, the sum of the MySQL migrations, and the
// version table with the rows that say so. A server that starts on such a database migrates
// nothing.
//
//	go run ./sql/initsql > sql/init.sql
package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/ax-scheduler/ax/sql/migrate"
)

const head = `-- Everything that ax-server needs in MySQL 8 or MariaDB 10.6+, for those who make databases by
-- hand: the database, its tables and indexes, and the version table that the server reads.
-- Run it once, as a user who may create databases; it stops at CREATE DATABASE when the
-- database is there already. Where the database was made beforehand, leave that line out.
--
--     mysql < sql/init.sql
--
-- Made from sql/migrate/mysql by make generate. Do not edit.

CREATE DATABASE ax_dispatch CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
USE ax_dispatch;
`

// The table is what goose makes for itself. It comes last: a database with tables and without
// it is one where this script was stopped half-way, and the server says so.
const versionTable = `
-- what goose, the migrator, knows: every file above was applied
CREATE TABLE goose_db_version (
  id bigint(20) unsigned NOT NULL AUTO_INCREMENT,
  version_id bigint NOT NULL,
  is_applied boolean NOT NULL,
  tstamp datetime NULL default CURRENT_TIMESTAMP,
  PRIMARY KEY(id)
);
`

func main() {
	if err := write(os.Stdout); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "initsql:", err)
		os.Exit(1)
	}
}

func write(w io.Writer) error {
	files, err := migrate.Files(migrate.MySQL)
	if err != nil {
		return err
	}
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return err
	}
	slices.Sort(names)
	var b strings.Builder
	b.WriteString(head)
	versions := []string{"(0, 1)"}
	for _, name := range names {
		raw, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		up, err := upPart(string(raw))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		number, _, _ := strings.Cut(path.Base(name), "_")
		version, err := strconv.Atoi(number)
		if err != nil {
			return fmt.Errorf("%s: the name does not begin with a number", name)
		}
		fmt.Fprintf(&b, "\n-- %s\n\n%s", name, up)
		versions = append(versions, fmt.Sprintf("(%d, 1)", version))
	}
	b.WriteString(versionTable)
	fmt.Fprintf(&b, "INSERT INTO goose_db_version (version_id, is_applied) VALUES %s;\n", strings.Join(versions, ", "))
	_, err = io.WriteString(w, b.String())
	return err
}

// upPart is what a migration file does on the way up, without the migrator's marks.
func upPart(text string) (string, error) {
	_, rest, found := strings.Cut(text, "-- +goose Up\n")
	if !found {
		return "", fmt.Errorf("there is no line %q", "-- +goose Up")
	}
	up, _, _ := strings.Cut(rest, "-- +goose Down\n")
	var kept []string
	for line := range strings.Lines(up) {
		if strings.HasPrefix(line, "-- +goose") {
			// StatementBegin and StatementEnd guard bodies with semicolons of their own, which
			// a client needs other marks for.
			return "", fmt.Errorf("%q is not understood by this generator", strings.TrimSpace(line))
		}
		kept = append(kept, line)
	}
	return strings.TrimSpace(strings.Join(kept, "")) + "\n", nil
}
