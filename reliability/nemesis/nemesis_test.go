package nemesis

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/ledger"
	"github.com/ax-scheduler/ax/internal/storetest"
	"github.com/ax-scheduler/ax/server/axtest"
)

var (
	run    = flag.Bool("nemesis", false, "run the faults")
	span   = flag.Duration("span", 30*time.Second, "how long faults are made")
	seed   = flag.Uint64("seed", 0, "of the run; 0 = any")
	only   = flag.String("faults", "", "the faults to make, separated by commas; empty = all")
	record = flag.String("record", "", "file to which the run's result is appended")
)

func TestMain(m *testing.M) { axtest.Main(m) }

// scene is three replicas, each with its own way to one database, executors that keep ledgers, and somebody who calls.
type scene struct {
	t      *testing.T
	dice   *rand.Rand
	db     *storetest.Private
	ways   []*axtest.Proxy
	list   []*axtest.Server
	down   []bool
	spaces []*axtest.Namespace
	jobs   map[string][]string
	works  []*axtest.Executor
	dir    string

	mu       sync.Mutex
	answered []Answered
	asked    int
	faults   map[string]int
}

const replicas = 3

func newScene(t *testing.T, seed uint64) *scene {
	t.Helper()
	s := &scene{t: t, dice: rand.New(rand.NewPCG(seed, 7)), dir: t.TempDir(), jobs: map[string][]string{}, faults: map[string]int{}, down: make([]bool, replicas)} //nolint:gosec // a run that can be repeated
	s.db = storetest.StartPrivate(t)
	dsns := make([]string, replicas)
	for i := range replicas {
		s.ways = append(s.ways, axtest.NewProxy(t, s.db.Address()))
		if i == 0 {
			dsns[i] = s.db.Plain(t, s.ways[i].Address)
		} else {
			dsns[i] = strings.Replace(dsns[0], s.ways[0].Address, s.ways[i].Address, 1)
		}
	}
	s.list = axtest.ReplicasOn(t, dsns, axtest.Set("executor-lease", "30s"))
	for i := range 4 {
		ns := s.list[0].Namespace(t)
		app := ns.App("app").At(append(s.list[i%replicas:len(s.list):len(s.list)], s.list[:i%replicas]...)...)
		for n := range 2 {
			s.works = append(s.works, app.Executor(s.handlers(ns.Name, fmt.Sprintf("%s-%d", ns.Name, n))))
		}
		def := func(name, handler, every string, more axtest.Def) {
			d := axtest.Def{
				"name": name, "handler": handler, "concurrency": map[string]any{"policy": "allow", "max": 0}, "misfire": map[string]any{"policy": "all", "rate": 100},
				"triggers": []map[string]any{{"kind": "fixedRate", "every": every}, {"kind": "event"}},
			}
			maps.Copy(d, more)
			s.jobs[ns.Name] = append(s.jobs[ns.Name], ns.Job(d))
		}
		for j := range 6 {
			def(fmt.Sprint("quick ", j), "quick", "1s", nil)
		}
		def("slow", "slow", "2s", nil)
		def("fails once", "flaky", "2s", axtest.Def{"retry": map[string]any{"max": 5, "backoff": "fixed", "initial": "300ms"}})
		def("all", "quick", "3s", axtest.Def{"routing": map[string]any{"strategy": "shardingBroadcast"}})
		s.spaces = append(s.spaces, ns)
	}
	return s
}

// handlers write a line before they begin and one after they have ended, each on disk before it goes on.
func (s *scene) handlers(namespace, name string) map[string]axtest.Handler {
	f, err := os.OpenFile(filepath.Join(s.dir, name+".jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = f.Close() })
	var mu sync.Mutex
	write := func(what, state string, r axtest.Run) {
		mu.Lock()
		defer mu.Unlock()
		job, execution := number(r.Job.ID), number(r.ExecutionID)
		raw, err := json.Marshal(Line{What: what, Executor: name, Namespace: namespace, Job: job, Batch: r.BatchID, Shard: r.ShardingID, Attempt: r.Attempt, Execution: execution, Epoch: r.Fence.Epoch, Due: r.DueAt, At: time.Now().UnixMilli(), State: state})
		if err == nil {
			_, err = f.Write(append(raw, '\n'))
		}
		if err == nil {
			err = f.Sync()
		}
		if err != nil {
			s.t.Errorf("ledger of %s: %v", name, err)
		}
	}
	kept := func(work axtest.Handler) axtest.Handler {
		return func(ctx context.Context, r axtest.Run) axtest.Result {
			write("start", "", r)
			res := work(ctx, r)
			state := res.State
			if state == "" {
				state = "SUCCEEDED"
			}
			write("end", state, r)
			return res
		}
	}
	return map[string]axtest.Handler{
		"quick": kept(axtest.Succeed), "slow": kept(axtest.For(1500 * time.Millisecond)),
		"flaky": kept(func(_ context.Context, r axtest.Run) axtest.Result {
			if r.Attempt%2 == 1 {
				return axtest.Result{State: "FAILED", Message: "not yet"}
			}
			return axtest.Result{}
		}),
	}
}

func number(text string) (n int64) {
	_, _ = fmt.Sscan(text, &n)
	return n
}

// call triggers jobs and sends events to any replica until ctx ends, and notes what was answered with success. An event is
// repeated with its key until it was.
func (s *scene) call(ctx context.Context) {
	dice := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a run that can be repeated
	for n := 0; ctx.Err() == nil; n++ {
		ns := s.spaces[dice.IntN(len(s.spaces))]
		job := s.jobs[ns.Name][dice.IntN(len(s.jobs[ns.Name]))]
		key := ""
		if n%2 == 0 {
			key = fmt.Sprintf("event %d", n)
		}
		for try := 0; try < 20 && ctx.Err() == nil; try++ {
			at := ns.At(s.list[dice.IntN(replicas)])
			path, header := at.Path("/jobs/"+job+"/trigger"), http.Header{}
			if key != "" {
				path, header = "/api/v1/tasks/"+job+"/events", http.Header{"Idempotency-Key": {key}}
			}
			at.Client.Header = header
			a, err := at.Client.Try(http.MethodPost, path, map[string]any{})
			if err == nil && a.Status < 300 {
				var out struct {
					BatchID string `json:"batchId"`
				}
				_ = json.Unmarshal(a.Body, &out)
				s.mu.Lock()
				s.answered = append(s.answered, Answered{RequestID: a.Header.Get("X-Request-Id"), Batch: out.BatchID, Key: key})
				s.mu.Unlock()
				if key == "" || try > 0 || dice.IntN(3) > 0 {
					break // now and then an event is sent again although it was taken
				}
				continue
			}
			if key == "" {
				break // without a key nobody may repeat it
			}
			axtest.Pause(150 * time.Millisecond)
		}
		s.mu.Lock()
		s.asked++
		s.mu.Unlock()
		axtest.Pause(60 * time.Millisecond)
	}
}

func (s *scene) between(low, high time.Duration) time.Duration {
	return low + time.Duration(s.dice.Int64N(int64(high-low)))
}

// faults are what can happen, each healed by itself when it returns.
func (s *scene) makers() map[string]func() {
	replica := func() int { return s.dice.IntN(replicas) }
	return map[string]func(){
		"kill": func() {
			r := s.list[replica()]
			r.Kill()
			axtest.Pause(s.between(200*time.Millisecond, 2*time.Second))
			r.Begin()
		},
		"pause": func() {
			r := s.list[replica()]
			r.Signal(syscall.SIGSTOP)
			axtest.Pause(s.between(time.Second, 6*time.Second))
			r.Signal(syscall.SIGCONT)
		},
		"restart": func() {
			r := s.list[replica()]
			r.Stop()
			r.Begin()
		},
		"cut": func() {
			w := s.ways[replica()]
			w.Cut(true)
			axtest.Pause(s.between(500*time.Millisecond, 5*time.Second))
			w.Cut(false)
		},
		"stall": func() {
			w := s.ways[replica()]
			w.Stall(true)
			axtest.Pause(s.between(500*time.Millisecond, 5*time.Second))
			w.Stall(false)
		},
		"lost answers": func() {
			w := s.ways[replica()]
			w.LoseCommits(1 + s.dice.IntN(5))
			axtest.Pause(s.between(500*time.Millisecond, 1500*time.Millisecond))
			w.LoseCommits(0)
		},
		"database restart": func() {
			s.db.Kill(s.t)
			axtest.Pause(s.between(100*time.Millisecond, time.Second))
			s.db.Start(s.t)
			for _, w := range s.ways {
				w.Target(s.db.Address())
			}
		},
		"read-only": func() {
			s.db.Exec(s.t, "SET GLOBAL read_only = 1")
			axtest.Pause(s.between(500*time.Millisecond, 3*time.Second))
			s.db.Exec(s.t, "SET GLOBAL read_only = 0")
		},
		"deadlocks": func() { s.deadlocks(s.between(time.Second, 2*time.Second)) },
		"executor cut off": func() {
			x := s.works[s.dice.IntN(len(s.works))]
			x.Silence(true)
			x.Is(axtest.Hangs)
			axtest.Pause(s.between(500*time.Millisecond, 4*time.Second))
			x.Is(axtest.Fine)
			x.Silence(false)
		},
		"repeated results": func() {
			for range 5 {
				x := s.works[s.dice.IntN(len(s.works))]
				starts := x.Starts()
				if len(starts) == 0 {
					continue
				}
				var list []map[string]any
				for range 10 {
					st := starts[s.dice.IntN(len(starts))]
					if st.Until.IsZero() {
						continue
					}
					if !x.Took(st.Run.ExecutionID) {
						continue
					}
					// What it said before, or a lie that comes after the truth was taken.
					state := []string{"SUCCEEDED", "FAILED"}[s.dice.IntN(2)]
					list = append(list, axtest.ResultOf(st.Run, state, "again"))
				}
				x.Post("/ax/results", map[string]any{"type": "results", "namespace": x.Namespace(), "app": "app", "instance": x.Instance(), "results": list})
			}
		},
	}
}

// deadlocks locks the rows that the engines lock, in crossing orders.
func (s *scene) deadlocks(span time.Duration) {
	db := s.db.DB(s.t)
	defer func() { _ = db.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), span)
	defer cancel()
	var wait sync.WaitGroup
	for worker := range 4 {
		wait.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					return
				}
				for step := range 4 {
					bucket := (i + step*(1+worker%2*62)) % 64
					if _, err = tx.ExecContext(ctx, "SELECT * FROM ax_plain.bucket_lease WHERE bucket = ? FOR UPDATE", bucket); err != nil {
						break
					}
					if _, err = tx.ExecContext(ctx, "SELECT * FROM ax_plain.execution_log ORDER BY id DESC LIMIT 20 FOR UPDATE"); err != nil {
						break
					}
				}
				_ = tx.Rollback()
			}
		})
	}
	wait.Wait()
}

// evidence reads what is left behind.
func (s *scene) evidence() Evidence {
	s.t.Helper()
	e := Evidence{Answered: s.answered, Audited: map[string]int{}, Owners: map[string][]int64{}}
	files, err := filepath.Glob(filepath.Join(s.dir, "*.jsonl"))
	require.NoError(s.t, err)
	for _, name := range files {
		f, err := os.Open(name)
		require.NoError(s.t, err)
		lines, err := Read(f)
		require.NoError(s.t, err)
		require.NoError(s.t, f.Close())
		e.Ledger = append(e.Ledger, lines...)
	}
	for ns, jobs := range s.jobs {
		for _, id := range jobs {
			e.Owners[ns] = append(e.Owners[ns], number(id))
		}
	}
	db := s.db.DB(s.t)
	defer func() { _ = db.Close() }()
	read := func(query string, places func() []any, take func()) {
		rows, err := db.QueryContext(context.Background(), query)
		require.NoError(s.t, err)
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			require.NoError(s.t, rows.Scan(places()...))
			take()
		}
		require.NoError(s.t, rows.Err())
	}
	var r Row
	read("SELECT id, bucket, job_id, batch_id, shard, attempt, status FROM ax_plain.execution_log", func() []any { return []any{&r.ID, &r.Bucket, &r.Job, &r.Batch, &r.Shard, &r.Attempt, &r.Status} }, func() { e.Rows = append(e.Rows, r) })
	var f Firing
	read("SELECT batch_id, job_id, state FROM ax_plain.execution_batch", func() []any { return []any{&f.ID, &f.Job, &f.State} }, func() { e.Firings = append(e.Firings, f) })
	var id string
	read("SELECT request_id FROM ax_plain.audit_log", func() []any { return []any{&id} }, func() { e.Audited[id]++ })
	report, err := ledger.Check(context.Background(), s.list[0].Store(), ledger.Options{})
	require.NoError(s.t, err)
	e.Planned = report.Counts
	for _, found := range report.Found[:min(len(report.Found), 10)] {
		s.t.Logf("found: %+v", found)
	}
	return e
}

// result is what one run leaves in the file of results.
type result struct {
	At         string         `json:"at"`
	Commit     string         `json:"commit"`
	Seed       uint64         `json:"seed"`
	Seconds    float64        `json:"seconds"`
	Faults     map[string]int `json:"faults"`
	Firings    int            `json:"firings"`
	Starts     int            `json:"starts"`
	Answered   int            `json:"answered"`
	HealedIn   float64        `json:"healedInSeconds"`
	Violations []Violation    `json:"violations"`
	Verdict    string         `json:"verdict"`
}

// play makes faults for a while and returns what the checker says. even: the buckets have one owner each again in the end.
func play(t *testing.T, seed uint64, span time.Duration, kinds []string, even bool) result {
	t.Helper()
	s := newScene(t, seed)
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	calls.Go(func() { s.call(ctx) })
	makers := s.makers()
	if len(kinds) == 0 {
		kinds = []string{"kill", "pause", "restart", "cut", "stall", "lost answers", "database restart", "read-only", "deadlocks", "executor cut off", "repeated results"}
	}
	began := time.Now()
	for time.Since(began) < span {
		kind := kinds[s.dice.IntN(len(kinds))]
		make, ok := makers[kind]
		require.True(t, ok, "there is no fault %q", kind)
		t.Logf("%6.1fs %s", time.Since(began).Seconds(), kind)
		make()
		s.faults[kind]++
		axtest.Pause(s.between(200*time.Millisecond, 1200*time.Millisecond))
	}
	healed := time.Now()
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for i, r := range s.list {
			a, err := r.Anonymous().Try(http.MethodGet, "/readyz", nil)
			t.Logf("replica %d at %s: %s %v, owns %.0f", i, r.URL(), a.Text(), err, r.Metric("ax_buckets_owned"))
		}
	})
	for _, r := range s.list {
		r.WaitReady()
	}
	if even {
		axtest.Even(t, s.list...)
	}
	took := time.Since(healed)
	cancel()
	calls.Wait()
	s.settle()
	e := s.evidence()
	found := Check(e)
	found = append(found, s.bounds(took)...)
	starts := 0
	for _, l := range e.Ledger {
		if l.What == "start" {
			starts++
		}
	}
	commit, _ := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	out := result{
		At: time.Now().UTC().Format(time.RFC3339), Commit: strings.TrimSpace(string(commit)), Seed: seed, Seconds: time.Since(began).Seconds(), Faults: s.faults,
		Firings: len(e.Firings), Starts: starts, Answered: len(e.Answered), HealedIn: took.Seconds(), Violations: found, Verdict: "clean",
	}
	if len(found) > 0 {
		out.Verdict = "violated"
	}
	require.Greater(t, starts, int(span.Seconds()), "nothing was there to be checked")
	return out
}

// bounds are the invariants that the running servers show: I6 how fast it heals, I9 no secret is written anywhere, I10 connections are
// bounded, and so are the servers' goroutines (I8).
func (s *scene) bounds(healedIn time.Duration) (out []Violation) {
	const recovery, goroutines = 30 * time.Second, 2000
	if healedIn > recovery {
		out = append(out, Violation{"I6", fmt.Sprintf("it took %s until all was well again", healedIn)})
	}
	for _, r := range s.list {
		if n := r.Metric("go_goroutines"); n > goroutines {
			out = append(out, Violation{"I8", fmt.Sprintf("%.0f goroutines", n)})
		}
		for _, secret := range []string{"plain:plain", axtest.Password, "axk_"} {
			if strings.Contains(r.Log(), secret) {
				out = append(out, Violation{"I9", "a secret is in a log: " + secret[:3] + "…"})
			}
		}
	}
	db := s.db.DB(s.t)
	defer func() { _ = db.Close() }()
	var name string
	var most int
	require.NoError(s.t, db.QueryRowContext(context.Background(), "SHOW GLOBAL STATUS LIKE 'Max_used_connections'").Scan(&name, &most))
	if limit := replicas*(24+20+4) + 20; most > limit {
		out = append(out, Violation{"I10", fmt.Sprintf("%d connections at once, more than %d", most, limit)})
	}
	return out
}

// settle switches everything off and waits until what was begun has ended.
func (s *scene) settle() {
	s.t.Helper()
	for _, ns := range s.spaces {
		for _, id := range s.jobs[ns.Name] {
			axtest.WaitFor(s.t, "the job is switched off", func() bool {
				v := ns.JobView(id)
				a, err := ns.Client.Try(http.MethodPost, ns.Path("/jobs/"+id+"/disable"), map[string]any{"version": v.Version})
				return err == nil && a.Status == http.StatusOK
			})
		}
	}
	db := s.db.DB(s.t)
	defer func() { _ = db.Close() }()
	axtest.WaitUpTo(s.t, 3*time.Minute, "everything has ended", func() bool {
		var open int
		err := db.QueryRowContext(context.Background(), "SELECT COUNT(*) FROM ax_plain.execution_batch WHERE state NOT IN ('SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELLED', 'SKIPPED', 'MISSED')").Scan(&open)
		require.NoError(s.t, err)
		return open == 0
	})
}

// TestNemesis plays one run. With -record its result is appended to a file, also when it is not clean.
func TestNemesis(t *testing.T) {
	if !*run {
		t.Skip("make nemesis runs it")
	}
	chosen := *seed
	if chosen == 0 {
		chosen = rand.Uint64() >> 16
	}
	t.Logf("seed %d", chosen)
	var kinds []string
	if *only != "" {
		kinds = strings.Split(*only, ",")
	}
	out := play(t, chosen, *span, kinds, true)
	raw, err := json.Marshal(out)
	require.NoError(t, err)
	t.Logf("%s", raw)
	if *record != "" {
		f, err := os.OpenFile(*record, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644) //nolint:gosec // it is published
		require.NoError(t, err)
		_, err = f.Write(append(raw, '\n'))
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	require.Empty(t, out.Violations)
}
