package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// chunkOrders is how many orders one transaction copies: short enough that processes that share
// the database do not wait for each other, long enough that commits do not dominate.
const chunkOrders = 200

// part is what one shard of a batch copies.
type part struct {
	batchID string
	shard   int
	total   int
	day     span
	pause   time.Duration // between chunks, so that the sample can be watched
}

var errTotalChanged = errors.New("the number of shards is not what this batch began with")

// copyPart copies the orders of p into the warehouse and returns how many this shard has copied,
// earlier attempts included. It goes on where the batch's stored offset is, and may be cut off
// anywhere: rows and offset are committed together. note is told after each chunk.
//
// The table is split by id % total, not by ranges of id: the ids have holes, and of ranges of
// equal width one may hold a few orders and another one nearly all of them. The holes do not
// follow the remainder, so each shard gets about the same number.
func copyPart(ctx context.Context, db *sql.DB, p part, note func(copied, expected int64)) (copied int64, err error) {
	var expected int64
	err = db.QueryRowContext(ctx, `SELECT count(*) FROM orders WHERE created_at >= ? AND created_at < ? AND id % ? = ?`,
		p.day.from.UnixMilli(), p.day.until.UnixMilli(), p.total, p.shard).Scan(&expected)
	if err != nil {
		return 0, fmt.Errorf("count orders of shard %d: %w", p.shard, err)
	}
	for {
		var more bool
		copied, more, err = copyChunk(ctx, db, p)
		if err != nil {
			return copied, fmt.Errorf("copy shard %d after %d orders: %w", p.shard, copied, err)
		}
		if !more {
			return copied, nil
		}
		note(copied, expected)
		select {
		case <-ctx.Done():
			return copied, context.Cause(ctx)
		case <-time.After(p.pause):
		}
	}
}

// copyChunk copies the next orders in one transaction. It reads the offset under the write lock,
// so that even an earlier attempt that still runs somewhere can not copy the same orders.
func copyChunk(ctx context.Context, db *sql.DB, p part) (copied int64, more bool, err error) {
	err = inTx(ctx, db, func(tx *sql.Tx) error {
		var last int64
		var total int
		err := tx.QueryRowContext(ctx, `SELECT last_id, copied, total FROM sync_progress WHERE batch_id = ? AND shard = ?`,
			p.batchID, p.shard).Scan(&last, &copied, &total)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			if _, err := tx.ExecContext(ctx, `INSERT INTO sync_progress (batch_id, shard, total, last_id, copied, started_at) VALUES (?, ?, ?, 0, 0, ?)`,
				p.batchID, p.shard, p.total, time.Now().UnixMilli()); err != nil {
				return err
			}
		case err != nil:
			return err
		case total != p.total:
			return fmt.Errorf("%w: %d, now %d", errTotalChanged, total, p.total)
		}
		var upTo sql.NullInt64
		const which = `created_at >= ? AND created_at < ? AND id % ? = ? AND id > ?`
		if err := tx.QueryRowContext(ctx, `SELECT max(id) FROM (SELECT id FROM orders WHERE `+which+` ORDER BY id LIMIT ?)`,
			p.day.from.UnixMilli(), p.day.until.UnixMilli(), p.total, p.shard, last, chunkOrders).Scan(&upTo); err != nil {
			return err
		}
		if !upTo.Valid {
			return nil
		}
		res, err := tx.ExecContext(ctx, `INSERT INTO warehouse_orders (batch_id, shard, order_id, customer, amount_cents, copied_at)
			SELECT ?, ?, id, customer, amount_cents, ? FROM orders WHERE `+which+` AND id <= ? ORDER BY id`,
			p.batchID, p.shard, time.Now().UnixMilli(),
			p.day.from.UnixMilli(), p.day.until.UnixMilli(), p.total, p.shard, last, upTo.Int64)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		if err != nil {
			return err
		}
		copied, more = copied+n, true
		_, err = tx.ExecContext(ctx, `UPDATE sync_progress SET last_id = ?, copied = ? WHERE batch_id = ? AND shard = ?`,
			upTo.Int64, copied, p.batchID, p.shard)
		return err
	})
	return copied, more, err
}

// report is what check finds about a batch.
type report struct {
	Batch    string `json:"batch"`
	Day      string `json:"day"`
	Expected int64  `json:"expected"` // orders of the day
	Copied   int64  `json:"copied"`   // rows in the warehouse
	Distinct int64  `json:"distinct"` // orders among them
	Missing  int64  `json:"missing"`  // orders of the day that are not there
	Doubled  int64  `json:"doubled"`  // rows too many
}

func (r report) good() bool { return r.Missing == 0 && r.Doubled == 0 }

// check compares the warehouse with the orders, by SQL alone, and then trims the warehouse to
// the newest keep batches.
func check(ctx context.Context, db *sql.DB, batchID string, planned time.Time, keep int) (report, error) {
	day := dayBefore(planned)
	r := report{Batch: batchID, Day: day.from.Format(time.DateOnly)}
	if err := ensureDay(ctx, db, day); err != nil {
		return r, err
	}
	// One transaction, so that a batch that is being copied is seen at one moment.
	err := inTx(ctx, db, func(tx *sql.Tx) error {
		if err := tx.QueryRowContext(ctx, `SELECT count(*), count(DISTINCT order_id) FROM warehouse_orders WHERE batch_id = ?`, batchID).
			Scan(&r.Copied, &r.Distinct); err != nil {
			return err
		}
		r.Doubled = r.Copied - r.Distinct
		if err := tx.QueryRowContext(ctx, `
			SELECT count(*), coalesce(sum(NOT EXISTS (SELECT 1 FROM warehouse_orders w WHERE w.batch_id = ? AND w.order_id = o.id)), 0)
			FROM orders o WHERE o.created_at >= ? AND o.created_at < ?`,
			batchID, day.from.UnixMilli(), day.until.UnixMilli()).Scan(&r.Expected, &r.Missing); err != nil {
			return err
		}
		return trim(ctx, tx, batchID, keep)
	})
	if err != nil {
		return r, fmt.Errorf("check batch %s: %w", batchID, err)
	}
	return r, nil
}

// trim drops all but the newest keep batches, and never the one that is looked at. Offset and
// rows go together: a dropped batch that is tried again starts from its beginning.
func trim(ctx context.Context, tx *sql.Tx, looked string, keep int) error {
	const old = ` WHERE batch_id <> ? AND batch_id NOT IN (
		SELECT batch_id FROM sync_progress GROUP BY batch_id ORDER BY min(started_at) DESC, batch_id DESC LIMIT ?)`
	if _, err := tx.ExecContext(ctx, `DELETE FROM warehouse_orders`+old, looked, keep); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `DELETE FROM sync_progress`+old, looked, keep)
	return err
}
