package ax

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

var quiet = slog.New(slog.DiscardHandler)

func testExecution(n, attempt int) *execution {
	return &execution{
		executionRef: executionRef{BatchID: fmt.Sprintf("10001-2026113008%04d", n), ExecutionID: fmt.Sprint(n*100 + attempt)},
		Fence:        fence{Attempt: attempt, Epoch: 7}, ShardingTotal: 1,
	}
}

func (e *execution) key() attemptKey {
	return attemptKey{shardKeyOf(e.BatchID, e.ShardingID), e.Fence.Attempt}
}

func endOf(e *execution, s state) *result {
	return &result{executionRef: e.executionRef, Fence: e.Fence, State: s, Message: "a message", Result: `{"copied":1}`}
}

func open(t *testing.T, dir string, now time.Time) *journal {
	t.Helper()
	j, err := openJournal(dir, quiet, now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.close() })
	return j
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestJournalRemembersOverARestart(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	j := open(t, dir, now)
	a, b, c := testExecution(1, 1), testExecution(2, 1), testExecution(3, 2)
	must(t, j.take([]*execution{a, b, c}, now))
	must(t, j.end(a.key(), endOf(a, succeeded), now))
	must(t, j.end(b.key(), endOf(b, failed), now))
	must(t, j.sent([]string{a.ExecutionID}))
	must(t, j.close())
	for range 2 { // the second time from the rewritten file
		j = open(t, dir, now)
		for _, w := range []struct {
			e       *execution
			state   state
			spooled bool
		}{{a, succeeded, false}, {b, failed, true}, {c, "", false}} {
			k, ok := j.find(w.e.key().shard)
			if !ok || k.attempt != w.e.Fence.Attempt || k.state != w.state || j.spooledFor(w.e.key()) != w.spooled {
				t.Fatalf("%s: %+v, spooled %v", w.e.ExecutionID, k, j.spooledFor(w.e.key()))
			}
		}
		if p := j.pending(10, 1<<20); len(p) != 1 || !bytes.Contains(p[0].body, []byte("a message")) {
			t.Fatalf("pending: %v", p)
		}
		must(t, j.close())
	}
}

// A crash can end the file at any byte. What was on the disk before the last record counts.
func TestJournalCutAtEveryByte(t *testing.T) {
	now := time.Now()
	dir := t.TempDir()
	j := open(t, dir, now)
	a, b := testExecution(1, 1), testExecution(2, 1)
	must(t, j.take([]*execution{a}, now))
	must(t, j.end(a.key(), endOf(a, succeeded), now))
	sure := j.size
	must(t, j.take([]*execution{b}, now))
	whole := j.size
	must(t, j.close())
	file, err := os.ReadFile(filepath.Join(dir, journalFile))
	must(t, err)
	for n := sure; n <= whole; n++ {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, journalFile), file[:n], 0o600))
		j, err := openJournal(dir, quiet, now)
		must(t, err)
		if k, ok := j.find(a.key().shard); !ok || k.state != succeeded || !j.spooledFor(a.key()) {
			t.Fatalf("cut at %d: the first is lost", n)
		}
		if _, ok := j.find(b.key().shard); ok != (n == whole) {
			t.Fatalf("cut at %d: second known: %v", n, ok)
		}
		must(t, j.take([]*execution{b}, now)) // goes on behind the damage
		must(t, j.close())
		j, err = openJournal(dir, quiet, now)
		must(t, err)
		if _, ok := j.find(b.key().shard); !ok {
			t.Fatalf("cut at %d: what came after is lost", n)
		}
		must(t, j.close())
	}
}

func TestJournalSkipsDamageInTheMiddle(t *testing.T) {
	now := time.Now()
	dir := t.TempDir()
	j := open(t, dir, now)
	a, b, c := testExecution(1, 1), testExecution(2, 1), testExecution(3, 1)
	for _, e := range []*execution{a, b, c} {
		must(t, j.take([]*execution{e}, now))
	}
	must(t, j.close())
	name := filepath.Join(dir, journalFile)
	file, err := os.ReadFile(name)
	must(t, err)
	lines := bytes.SplitAfter(file, []byte("\n"))
	lines[1][20] ^= 1
	lines = append(lines, []byte("no record\n\n"), bytes.Repeat([]byte("x"), 3<<20), []byte("\n"))
	must(t, os.WriteFile(name, bytes.Join(lines, nil), 0o600))
	var log bytes.Buffer
	j, err = openJournal(dir, slog.New(slog.NewTextHandler(&log, nil)), now)
	must(t, err)
	defer j.close()
	_, okA := j.find(a.key().shard)
	_, okB := j.find(b.key().shard)
	_, okC := j.find(c.key().shard)
	if !okA || okB || !okC {
		t.Fatal(okA, okB, okC)
	}
	if !strings.Contains(log.String(), "records=3") {
		t.Fatal(log.String())
	}
}

func TestJournalKeepsLongEnough(t *testing.T) {
	now := time.Now()
	dir := t.TempDir()
	j := open(t, dir, now)
	short, long, waits, busy := testExecution(1, 1), testExecution(2, 1), testExecution(3, 1), testExecution(4, 1)
	long.TimeoutMs = (50 * time.Hour).Milliseconds()
	must(t, j.take([]*execution{short, long, waits, busy}, now))
	must(t, j.end(waits.key(), endOf(waits, succeeded), now))
	kept := func() (s string) {
		for i, e := range []*execution{short, long, waits, busy} {
			if _, ok := j.find(e.key().shard); ok {
				s += fmt.Sprint(i)
			}
		}
		return s
	}
	running := map[shardKey]bool{busy.key().shard: true}
	for _, c := range []struct {
		after time.Duration
		want  string
	}{{47 * time.Hour, "0123"}, {49 * time.Hour, "123"}, {99 * time.Hour, "123"}, {101 * time.Hour, "23"}} {
		must(t, j.compact(now.Add(c.after), running))
		if got := kept(); got != c.want {
			t.Fatalf("after %s: kept %s, want %s", c.after, got, c.want)
		}
	}
	must(t, j.sent([]string{waits.ExecutionID}))
	must(t, j.compact(now.Add(101*time.Hour+rememberFor), running))
	if got := kept(); got != "3" {
		t.Fatalf("kept %s", got)
	}
}

func TestJournalStaysSmall(t *testing.T) {
	now := time.Now()
	j := open(t, t.TempDir(), now)
	value := strings.Repeat("x", 60<<10)
	for i := range 150 {
		e := testExecution(i, 1)
		must(t, j.take([]*execution{e}, now))
		r := endOf(e, succeeded)
		r.Result = value
		must(t, j.end(e.key(), r, now))
		must(t, j.sent([]string{e.ExecutionID}))
	}
	if j.size < compactFrom {
		t.Fatal("the test writes too little")
	}
	must(t, j.compactIfWorth(now, nil))
	if j.size > 100_000 || len(j.known) != 150 {
		t.Fatalf("size %d, known %d", j.size, len(j.known))
	}
}

func TestJournalThatCanNotBeWrittenTakesNothing(t *testing.T) {
	now := time.Now()
	j := open(t, t.TempDir(), now)
	a, b := testExecution(1, 1), testExecution(1, 2)
	must(t, j.take([]*execution{a}, now))
	j.file.Close() // from here on every write is an error
	if err := j.take([]*execution{b}, now); err == nil {
		t.Fatal("no error")
	}
	if k, _ := j.find(a.key().shard); k.attempt != 1 {
		t.Fatalf("%+v", k)
	}
	if err := j.end(a.key(), endOf(a, succeeded), now); err == nil || len(j.pending(9, 9)) != 1 {
		t.Fatal("the result must stay in memory, with an error", err)
	}
}

func TestJournalServesManyAtOnce(t *testing.T) {
	now := time.Now()
	dir := t.TempDir()
	j := open(t, dir, now)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 20 {
				e := testExecution(i*100+n, 1)
				if err := j.take([]*execution{e}, now); err != nil {
					t.Error(err)
				}
				if err := j.end(e.key(), endOf(e, succeeded), now); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Go(func() {
		for range 10 {
			if err := j.compact(now, nil); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	must(t, j.close())
	j = open(t, dir, now)
	if n, _ := j.backlog(); n != 160 || len(j.known) != 160 {
		t.Fatal(n, len(j.known))
	}
}

func TestRejectedAndGivenAnewSurvivesRewriting(t *testing.T) {
	now := time.Now()
	dir := t.TempDir()
	j := open(t, dir, now)
	a := testExecution(1, 1)
	again := testExecution(1, 1)
	again.ExecutionID = "7777"
	must(t, j.take([]*execution{a}, now))
	must(t, j.end(a.key(), endOf(a, rejected), now))
	must(t, j.take([]*execution{again}, now))
	for range 3 {
		must(t, j.close())
		j = open(t, dir, now)
		if k, _ := j.find(a.key().shard); k.execution != 7777 || k.state != "" {
			t.Fatalf("%+v", k)
		}
	}
}

func FuzzJournal(f *testing.F) {
	var b []byte
	e := testExecution(1, 1)
	b, _ = appendRecord(b, &record{Kind: "take", Shard: e.key().shard, Attempt: 1, Execution: 101, At: 1, Keep: 2})
	f.Add(b)
	f.Add([]byte("00000000 {}\n\n\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, journalFile), b, 0o600))
		j, err := openJournal(dir, slog.New(slog.DiscardHandler), time.Now())
		must(t, err)
		must(t, j.take([]*execution{testExecution(5, 1)}, time.Now()))
		must(t, j.close())
	})
}

func BenchmarkTake(b *testing.B) {
	j, err := openJournal(b.TempDir(), quiet, time.Now())
	if err != nil {
		b.Fatal(err)
	}
	defer j.close()
	n := 0
	for b.Loop() {
		n++
		if err := j.take([]*execution{testExecution(n, 1)}, time.Now()); err != nil {
			b.Fatal(err)
		}
	}
}
