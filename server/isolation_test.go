package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/storetest"
	"github.com/ax-scheduler/ax/server/axtest"
)

// What one namespace, its executors or the database do to its rows does not make the others late: the 99th percentile of
// their trigger error stays within twice what it is in peace, or under a floor that is the machine's noise.
func TestOthersAreNotMadeLate(t *testing.T) {
	const span, floor = 5 * time.Second, 150 * time.Millisecond
	db := storetest.StartPrivate(t)
	s := axtest.Start(t, axtest.Database(db.Plain(t, db.Address())))
	l := newLoad(t, []*axtest.Server{s}, 2, 15, "1s", axtest.Succeed)
	axtest.Pause(2 * time.Second)
	measure := func(what string) time.Duration {
		t.Helper()
		from := time.Now()
		axtest.Pause(span)
		late := l.late(from, from.Add(span-500*time.Millisecond))
		require.Greater(t, len(late), 50, what)
		p99 := percentile(late, 0.99)
		t.Logf("%-28s %d firings, p50 %s, p99 %s, max %s", what, len(late), percentile(late, 0.5), p99, late[len(late)-1])
		return p99
	}
	quiet := measure("in peace")
	limit := max(2*quiet, floor)

	t.Run("a dead executor and a slow one", func(t *testing.T) {
		ns := s.Namespace(t)
		app := ns.App("app")
		dead, slow := app.Worker(axtest.Succeed), app.Worker(axtest.Succeed)
		dead.Is(axtest.Hangs)
		slow.Is(axtest.Slow)
		for i := range 10 {
			ns.Job(axtest.Def{"name": fmt.Sprint("job ", i), "concurrency": policy("allow", 0), "triggers": every("1s")})
		}
		axtest.Pause(time.Second)
		require.LessOrEqual(t, measure("dead and slow executors"), limit)
		dead.Is(axtest.Fine)
	})
	t.Run("a namespace that floods", func(t *testing.T) {
		ns := s.Namespace(t)
		ns.App("app").Worker(axtest.For(20 * time.Millisecond))
		job := ns.Job(axtest.Def{"concurrency": policy("allow", 0)})
		tasks := make([]map[string]any, 300)
		for i := range tasks {
			tasks[i] = map[string]any{"delay": "0s"}
		}
		ctx, stop := context.WithCancel(t.Context())
		var flood sync.WaitGroup
		flood.Go(func() {
			for ctx.Err() == nil {
				_, _ = ns.Client.Try(http.MethodPost, ns.Path("/jobs/"+job+"/delayed/bulk"), tasks)
				axtest.Pause(400 * time.Millisecond)
			}
		})
		got := measure("a flood of delayed tasks")
		stop()
		flood.Wait()
		require.NotEmpty(t, ns.Batches(job))
		require.LessOrEqual(t, got, max(limit, 4*floor), "on two cores the flood takes its share of them")
	})
	t.Run("a slow statement on a bucket", func(t *testing.T) {
		ns := s.Namespace(t)
		ns.App("app").Worker(axtest.Succeed)
		for i := range 5 {
			ns.Job(axtest.Def{"name": fmt.Sprint("job ", i), "concurrency": policy("allow", 0), "triggers": every("1s"), "routing": map[string]any{"strategy": "leastBusy"}})
		}
		row, err := s.Store().NamespaceByName(t.Context(), ns.Name)
		require.NoError(t, err)
		locker := db.DB(t)
		defer func() { _ = locker.Close() }()
		ctx, stop := context.WithCancel(t.Context())
		var lock sync.WaitGroup
		lock.Go(func() {
			for ctx.Err() == nil {
				tx, err := locker.BeginTx(ctx, nil)
				if err != nil {
					return
				}
				if _, err := tx.ExecContext(ctx, "SELECT * FROM ax_plain.bucket_lease WHERE bucket = ? FOR UPDATE", row.Bucket); err == nil {
					axtest.Pause(1500 * time.Millisecond)
				}
				_ = tx.Rollback()
				axtest.Pause(50 * time.Millisecond)
			}
		})
		axtest.Pause(time.Second)
		got := measure("a bucket that is locked")
		stop()
		lock.Wait()
		require.LessOrEqual(t, got, limit)
	})
	axtest.NothingTwice(t, l.executors...)
	s.LedgerClean(t)
}
