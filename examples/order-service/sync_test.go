package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const testBatch = "10001-20261130080000"

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func shanghai(t *testing.T) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation(seedZone)
	must(t, err)
	return zone
}

// shop is an order database with n orders a day for two days.
func shop(t *testing.T, n int) (db *sql.DB, file string, planned time.Time) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "orders with blank.db")
	db = handle(t, file)
	planned = time.Date(2026, 11, 30, 8, 0, 0, 0, shanghai(t))
	_, err := seed(t.Context(), db, 2*n, 2, planned)
	must(t, err)
	return db, file, planned
}

func handle(t *testing.T, file string) *sql.DB {
	t.Helper()
	db, err := openDB(context.Background(), file)
	must(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

func silent(int64, int64) {}

func mustCheck(t *testing.T, db *sql.DB, planned time.Time) report {
	t.Helper()
	r, err := check(t.Context(), db, testBatch, planned, 20)
	must(t, err)
	return r
}

func number(t *testing.T, db *sql.DB, query string, args ...any) (n int64) {
	t.Helper()
	must(t, db.QueryRow(query, args...).Scan(&n))
	return n
}

func TestSeedIsExactAndHasHoles(t *testing.T) {
	t.Parallel()
	db := handle(t, filepath.Join(t.TempDir(), "o.db"))
	now := time.Date(2026, 12, 1, 0, 30, 0, 0, shanghai(t))
	made, err := seed(t.Context(), db, defaultOrders, defaultDays, now)
	must(t, err)
	if made != defaultOrders || number(t, db, `SELECT count(*) FROM orders`) != defaultOrders {
		t.Fatal(made)
	}
	made, err = seed(t.Context(), db, defaultOrders, defaultDays, now.Add(time.Hour))
	must(t, err)
	if made != 0 {
		t.Fatal("made again", made)
	}
	yesterday := dayBefore(now)
	if n := number(t, db, `SELECT count(*) FROM orders WHERE created_at >= ? AND created_at < ?`, yesterday.from.UnixMilli(), yesterday.until.UnixMilli()); n != 10_000 {
		t.Fatal("yesterday has", n)
	}
	if n := number(t, db, `SELECT count(*) FROM orders WHERE created_at >= ? OR created_at < ?`, yesterday.until.UnixMilli(), yesterday.until.AddDate(0, 0, -20).UnixMilli()); n != 0 {
		t.Fatal("outside of the days", n)
	}

	// Four equal ranges of ids are skewed, remainders are not.
	skew := func(part string) (least, most int64) {
		q := `WITH d AS (SELECT id, min(id) OVER () AS lo, max(id) OVER () AS hi FROM orders WHERE created_at >= ? AND created_at < ?)
			SELECT min(n), max(n) FROM (SELECT s.value, (SELECT count(*) FROM d WHERE ` + part + ` = s.value) AS n FROM json_each('[0,1,2,3]') s)`
		must(t, db.QueryRow(q, yesterday.from.UnixMilli(), yesterday.until.UnixMilli()).Scan(&least, &most))
		return least, most
	}
	least, most := skew(`min((id - lo) * 4 / (hi - lo), 3)`)
	if most < 2*max(least, 1) {
		t.Fatalf("the holes skew nothing: %d to %d", least, most)
	}
	t.Logf("by ranges %d to %d orders a shard", least, most)
	least, most = skew(`id % 4`)
	if least < 2_300 || most > 2_700 {
		t.Fatalf("by remainder %d to %d", least, most)
	}
}

func TestEachOrderIsCopiedOnceByConcurrentWorkers(t *testing.T) {
	t.Parallel()
	db, file, planned := shop(t, 3000)
	const total = 3
	var wg sync.WaitGroup
	for shard := range total {
		for range 2 { // two attempts of each shard at once: must not happen, must not harm
			other := handle(t, file)
			wg.Go(func() {
				p := part{testBatch, shard, total, dayBefore(planned), 0}
				if _, err := copyPart(context.Background(), other, p, silent); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	if r := mustCheck(t, db, planned); !r.good() || r.Expected != 3000 || r.Copied != 3000 || r.Day != "2026-11-29" {
		t.Fatalf("%+v", r)
	}
}

func TestCancelledCopyGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	db, _, planned := shop(t, 2000)
	p := part{testBatch, 0, 1, dayBefore(planned), 0}
	var seen []int64
	for attempt := range 20 {
		ctx, cancel := context.WithCancelCause(t.Context())
		stopped := errors.New("stopped")
		chunks := 0
		copied, err := copyPart(ctx, db, p, func(copied, expected int64) {
			seen = append(seen, copied)
			if chunks++; chunks == 1+attempt%3 {
				cancel(stopped)
			}
		})
		cancel(nil)
		if err == nil {
			if copied != 2000 {
				t.Fatal("the last attempt does not count the earlier ones:", copied)
			}
			break
		}
		if !errors.Is(err, stopped) {
			// Cancelled within a transaction: it was rolled back.
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
	}
	for i, n := range seen {
		if n != int64(i+1)*chunkOrders {
			t.Fatalf("chunks: %v", seen)
		}
	}
	if r := mustCheck(t, db, planned); !r.good() || r.Copied != 2000 {
		t.Fatalf("%+v", r)
	}
}

func TestShardsMustNotChangeTheirNumber(t *testing.T) {
	t.Parallel()
	db, _, planned := shop(t, 300)
	p := part{testBatch, 0, 2, dayBefore(planned), 0}
	_, err := copyPart(t.Context(), db, p, silent)
	must(t, err)
	p.total = 3
	if _, err = copyPart(t.Context(), db, p, silent); !errors.Is(err, errTotalChanged) {
		t.Fatal(err)
	}
}

func TestAnEmptyPartIsCopied(t *testing.T) {
	t.Parallel()
	db, _, planned := shop(t, 1)
	for shard := range 4 {
		_, err := copyPart(t.Context(), db, part{testBatch, shard, 4, dayBefore(planned), 0}, silent)
		must(t, err)
	}
	if r := mustCheck(t, db, planned); !r.good() || r.Copied != 1 {
		t.Fatalf("%+v", r)
	}
}

func TestCheckFindsWhatIsPlanted(t *testing.T) {
	t.Parallel()
	db, file, planned := shop(t, 500)
	_, err := copyPart(t.Context(), db, part{testBatch, 0, 1, dayBefore(planned), 0}, silent)
	must(t, err)
	run := func() (report, error) {
		var out, errOut bytes.Buffer
		err := command(t.Context(), []string{"check", "--db", file, "--batch", testBatch, "--planned", planned.UTC().Format(time.RFC3339), "--zone", seedZone}, strings.NewReader(""), &out, &errOut)
		var r report
		if e := json.Unmarshal(out.Bytes(), &r); e != nil {
			t.Fatal(e, out.String(), errOut.String(), err)
		}
		return r, err
	}
	if r, err := run(); err != nil {
		t.Fatal(r, err)
	}
	_, err = db.Exec(`INSERT INTO warehouse_orders SELECT * FROM warehouse_orders LIMIT 2`)
	must(t, err)
	if r, err := run(); !errors.Is(err, errFound) || r.Doubled != 2 || r.Missing != 0 || r.Copied != 502 {
		t.Fatal(r, err)
	}
	_, err = db.Exec(`DELETE FROM warehouse_orders WHERE order_id IN (SELECT DISTINCT order_id FROM warehouse_orders ORDER BY order_id DESC LIMIT 3)`)
	must(t, err)
	if r, err := run(); !errors.Is(err, errFound) || r.Missing != 3 || r.Doubled != 2 {
		t.Fatal(r, err)
	}
}

func TestOldBatchesLeaveTheWarehouse(t *testing.T) {
	t.Parallel()
	db, _, planned := shop(t, 10)
	for i := range 25 {
		id := fmt.Sprintf("10001-%02d", i)
		_, err := copyPart(t.Context(), db, part{id, 0, 1, dayBefore(planned), 0}, silent)
		must(t, err)
		_, err = db.Exec(`UPDATE sync_progress SET started_at = ? WHERE batch_id = ?`, i, id)
		must(t, err)
	}
	r, err := check(t.Context(), db, "10001-02", planned, 20)
	must(t, err)
	if !r.good() {
		t.Fatalf("%+v", r)
	}
	// The newest 20 are 05 to 24; 02 is the one that was looked at.
	if n := number(t, db, `SELECT count(DISTINCT batch_id) FROM warehouse_orders`); n != 21 {
		t.Fatal("batches:", n)
	}
	if n := number(t, db, `SELECT count(*) FROM sync_progress WHERE batch_id IN ('10001-00', '10001-01', '10001-03', '10001-04')`); n != 0 {
		t.Fatal("offsets without rows:", n)
	}
}

func TestDaysToComeAreMadeOnce(t *testing.T) {
	t.Parallel()
	db, file, planned := shop(t, 400)
	later := planned.AddDate(0, 0, 3)
	var wg sync.WaitGroup
	for range 4 {
		other := handle(t, file)
		wg.Go(func() {
			for range 3 {
				if err := ensureDay(context.Background(), other, dayBefore(later)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	day := dayBefore(later)
	if n := number(t, db, `SELECT count(*) FROM orders WHERE created_at >= ? AND created_at < ?`, day.from.UnixMilli(), day.until.UnixMilli()); n != 400 {
		t.Fatal("orders:", n)
	}
	if n := number(t, db, `SELECT count(*) FROM orders`); n != 1200 {
		t.Fatal("orders in all:", n)
	}
	// Yesterday elsewhere touches two days of the shop.
	newYork, err := time.LoadLocation("America/New_York")
	must(t, err)
	must(t, ensureDay(t.Context(), db, dayBefore(planned.AddDate(0, 0, 10).In(newYork))))
	if n := number(t, db, `SELECT count(*) FROM orders`); n != 2000 {
		t.Fatal("orders in all:", n)
	}
}

func TestDayBeforeKnowsClockChanges(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	must(t, err)
	d := dayBefore(time.Date(2026, 3, 30, 0, 30, 0, 0, berlin))
	if d.until.Sub(d.from) != 23*time.Hour || d.from.Day() != 29 {
		t.Fatal(d)
	}
}

func TestAThirdOfTheReportsIsFlaky(t *testing.T) {
	t.Parallel()
	count := [3]int{}
	for i := range 3000 {
		at := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC).Add(time.Duration(i) * time.Minute)
		count[failures("10003-"+at.Format("20060102150405"))]++
	}
	for n, want := range [3]int{2000, 500, 500} {
		if count[n] < want*8/10 || count[n] > want*12/10 {
			t.Fatalf("failures: %v", count)
		}
	}
}
