package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"time"
	_ "time/tzdata" // zones, also where the host has none

	_ "modernc.org/sqlite"
)

// seedZone is where the shop is: orders are spread over its days.
const seedZone = "Asia/Shanghai"

const (
	defaultOrders = 200_000
	defaultDays   = 20
)

const schema = `
CREATE TABLE IF NOT EXISTS orders (
	id           INTEGER PRIMARY KEY,
	created_at   INTEGER NOT NULL, -- milliseconds since the epoch
	customer     TEXT    NOT NULL,
	amount_cents INTEGER NOT NULL,
	status       TEXT    NOT NULL
);
CREATE INDEX IF NOT EXISTS orders_created ON orders (created_at);

-- One row for each day that has its orders, written in the transaction that wrote them.
CREATE TABLE IF NOT EXISTS seeded_days (
	day    TEXT PRIMARY KEY, -- yyyy-mm-dd in Asia/Shanghai
	orders INTEGER NOT NULL
);

-- The copy. On purpose nothing here keeps an order from being there twice for a batch: if the
-- scheduler or the copying ever did something twice, a query would show it.
CREATE TABLE IF NOT EXISTS warehouse_orders (
	batch_id     TEXT    NOT NULL,
	shard        INTEGER NOT NULL,
	order_id     INTEGER NOT NULL,
	customer     TEXT    NOT NULL,
	amount_cents INTEGER NOT NULL,
	copied_at    INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS warehouse_batch ON warehouse_orders (batch_id, order_id);

-- How far each shard of each batch has come; moves in the transaction that copies.
CREATE TABLE IF NOT EXISTS sync_progress (
	batch_id   TEXT    NOT NULL,
	shard      INTEGER NOT NULL,
	total      INTEGER NOT NULL, -- shards of the batch
	last_id    INTEGER NOT NULL,
	copied     INTEGER NOT NULL,
	started_at INTEGER NOT NULL,
	PRIMARY KEY (batch_id, shard)
);
`

// openDB opens the order database and brings it to the schema. Several processes may do so at
// once. Transactions take the write lock when they begin: one that reads first and then writes
// could otherwise find that another process wrote in between.
func openDB(ctx context.Context, file string) (*sql.DB, error) {
	q := url.Values{"_txlock": {"immediate"}, "_pragma": {"busy_timeout(15000)", "journal_mode(WAL)", "synchronous(FULL)"}}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: file}).EscapedPath()+"?"+q.Encode())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(8)
	if err := inTx(ctx, db, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, schema)
		return err
	}); err != nil {
		db.Close()
		return nil, fmt.Errorf("open order database %s: %w", file, err)
	}
	return db, nil
}

func inTx(ctx context.Context, db *sql.DB, f func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing to do after a commit
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// span is a stretch of time: from included, until not.
type span struct{ from, until time.Time }

// dayBefore is the whole calendar day before t, in t's zone.
func dayBefore(t time.Time) span {
	y, m, d := t.Date()
	return span{time.Date(y, m, d-1, 0, 0, 0, 0, t.Location()), time.Date(y, m, d, 0, 0, 0, 0, t.Location())}
}

// seed fills the database with orders over the days up to yesterday. Days that are there stay as they are.
func seed(ctx context.Context, db *sql.DB, orders, days int, now time.Time) (made int, err error) {
	if days < 1 || orders < days {
		return 0, errors.New("seed: at least one day, and one order a day")
	}
	zone, err := time.LoadLocation(seedZone)
	if err != nil {
		return 0, err
	}
	var have int
	if err := db.QueryRowContext(ctx, `SELECT coalesce(sum(orders), 0) FROM seeded_days`).Scan(&have); err != nil {
		return 0, err
	}
	if have >= orders {
		return 0, nil
	}
	y, m, d := now.In(zone).Date()
	for i := range days {
		n := orders*(i+1)/days - orders*i/days
		got, err := seedDay(ctx, db, time.Date(y, m, d-days+i, 0, 0, 0, 0, zone), n)
		if err != nil {
			return made, err
		}
		made += got
	}
	return made, nil
}

// ensureDay makes orders for the days that s touches, if there are none: the sample may run
// for longer than it was seeded for. Any number of processes may call it at once.
func ensureDay(ctx context.Context, db *sql.DB, s span) error {
	zone, err := time.LoadLocation(seedZone)
	if err != nil {
		return err
	}
	y, m, d := s.from.In(zone).Date()
	for day := time.Date(y, m, d, 0, 0, 0, 0, zone); day.Before(s.until); day = day.AddDate(0, 0, 1) {
		n := defaultOrders / defaultDays
		err := db.QueryRowContext(ctx, `SELECT orders FROM seeded_days ORDER BY day DESC LIMIT 1`).Scan(&n)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if _, err := seedDay(ctx, db, day, n); err != nil {
			return err
		}
	}
	return nil
}

// seedDay makes n orders of one day in one transaction, unless the day is there. Their ids grow
// and have holes, small ones and big ones, the same for each run: what real tables look like
// after deletions, imports and sequences that jumped.
func seedDay(ctx context.Context, db *sql.DB, day time.Time, n int) (made int, err error) {
	name := day.Format(time.DateOnly)
	seeded := func(q interface {
		QueryRowContext(context.Context, string, ...any) *sql.Row
	},
	) (yes bool, err error) {
		err = q.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM seeded_days WHERE day = ?)`, name).Scan(&yes)
		return yes, err
	}
	// Without the write lock first: this is asked by each shard of each batch.
	if yes, err := seeded(db); err != nil || yes {
		return 0, err
	}
	err = inTx(ctx, db, func(tx *sql.Tx) error {
		if yes, err := seeded(tx); err != nil || yes {
			return err
		}
		var id int64
		if err := tx.QueryRowContext(ctx, `SELECT coalesce(max(id), 100000) FROM orders`).Scan(&id); err != nil {
			return err
		}
		random := rand.New(rand.NewPCG(uint64(day.Unix()), 20))
		length := day.AddDate(0, 0, 1).Sub(day).Milliseconds()
		const rows = 500 // of one statement
		for done := 0; done < n; {
			batch := min(rows, n-done)
			args := make([]any, 0, batch*5)
			for range batch {
				id += gap(random)
				at := day.UnixMilli() + int64(done)*length/int64(n) + random.Int64N(max(length/int64(n), 1))
				args = append(args, id, at, fmt.Sprintf("C%05d", random.IntN(20_000)), 500+random.Int64N(200_000), statuses[random.IntN(len(statuses))])
				done++
			}
			values := strings.TrimSuffix(strings.Repeat("(?,?,?,?,?),", batch), ",")
			if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id, created_at, customer, amount_cents, status) VALUES `+values, args...); err != nil {
				return err
			}
		}
		made = n
		_, err := tx.ExecContext(ctx, `INSERT INTO seeded_days (day, orders) VALUES (?, ?)`, name, n)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("seed %s: %w", name, err)
	}
	return made, nil
}

var statuses = []string{"paid", "paid", "paid", "shipped", "shipped", "returned"} //nolint:gochecknoglobals // a table that nothing writes

// gap is the distance to the next id: mostly 1, now and then a few, rarely a jump.
func gap(random *rand.Rand) int64 {
	switch p := random.IntN(10_000); {
	case p < 3:
		return 100_000 + random.Int64N(900_000)
	case p < 30:
		return 1_000 + random.Int64N(9_000)
	case p < 1_500:
		return 2 + random.Int64N(8)
	}
	return 1
}
