package ax

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

type vectors struct {
	Vectors []struct {
		Name, Key, ID, Timestamp, Body, Signature, Reason string
		Good                                              bool
	}
	StandardWebhooks struct{ RawKeyHex, ID, Timestamp, Body, Signature string }
	Clock            []struct {
		OffsetSeconds int
		Accepted      bool
	}
}

func readVectors(t testing.TB) (v vectors) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "contract", "signatures.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Vectors) < 15 || len(v.Clock) < 5 {
		t.Fatal("vectors are missing")
	}
	return v
}

func TestSignatureVectors(t *testing.T) {
	v := readVectors(t)
	for _, c := range v.Vectors {
		key, err := parseKey(c.Key)
		must(t, err)
		seconds, _ := strconv.ParseInt(c.Timestamp, 10, 64)
		err = verify(key, c.ID, c.Timestamp, c.Signature, []byte(c.Body), time.Unix(seconds, 0))
		if (err == nil) != c.Good {
			t.Errorf("%s: %v", c.Name, err)
		}
		if !c.Good && !errors.Is(err, errSignature) {
			t.Errorf("%s: %v, want a bad signature", c.Name, err)
		}
		if c.Good && !strings.Contains(c.Signature, " ") && sign(key, c.ID, c.Timestamp, []byte(c.Body)) != c.Signature {
			t.Errorf("%s: signed differently", c.Name)
		}
	}
	key, _ := hex.DecodeString(v.StandardWebhooks.RawKeyHex)
	w := v.StandardWebhooks
	if got := sign(key, w.ID, w.Timestamp, []byte(w.Body)); got != w.Signature {
		t.Errorf("Standard Webhooks: %s", got)
	}
	now := time.Unix(1796000000, 0)
	for _, c := range v.Clock {
		ts := strconv.FormatInt(now.Unix()+int64(c.OffsetSeconds), 10)
		err := verify(key, "message-id", ts, sign(key, "message-id", ts, nil), nil, now)
		if c.Accepted != (err == nil) || err != nil && !errors.Is(err, errClock) {
			t.Errorf("%d s away: %v", c.OffsetSeconds, err)
		}
	}
}

func TestEverySignatureByteCounts(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 32)
	now := time.Unix(1796000000, 0)
	body := []byte(`{"type":"run"}`)
	good := sign(key, "message-id", "1796000000", body)
	for i := range good {
		for bit := range 8 {
			b := []byte(good)
			b[i] ^= 1 << bit
			if verify(key, "message-id", "1796000000", string(b), body, now) == nil {
				t.Fatalf("byte %d, bit %d", i, bit)
			}
		}
	}
	many := strings.Repeat("v1,x ", maxSignatures) + good
	if verify(key, "message-id", "1796000000", many, body, now) == nil {
		t.Fatal("more signatures are looked at than allowed")
	}
}

func TestReplayMemory(t *testing.T) {
	now := time.Now()
	r := replays{max: 100}
	if !r.take("a", now) || r.take("a", now) {
		t.Fatal("a message passes once")
	}
	if !r.take("b", now.Add(replayFor-time.Second)) || r.take("a", now.Add(replayFor)) {
		t.Fatal("an id is forgotten within the time")
	}
	if r.take("b", now.Add(2*replayFor-2*time.Second)) {
		t.Fatal("an id is forgotten within the time")
	}
	if !r.take("a", now.Add(5*replayFor)) {
		t.Fatal("an id is remembered for ever")
	}
	for i := range 10_000 {
		r.take(fmt.Sprint(i), now.Add(6*replayFor))
	}
	if len(r.young)+len(r.old) > 200 {
		t.Fatal("memory is not bounded")
	}
}

func TestBackoffGrowsToItsLimitWithJitter(t *testing.T) {
	b := backoff{}
	want := backoffFirst
	for range 20 {
		d := b.after(nil)
		if d < want*3/4 || d > want*5/4 {
			t.Fatalf("%s, want about %s", d, want)
		}
		want = min(2*want, backoffMost)
	}
	if d := b.after(&serverError{RetryAfter: 50 * time.Second}); d < 50*time.Second {
		t.Fatalf("Retry-After is not honoured: %s", d)
	}
	b.reset()
	if d := b.after(nil); d > time.Second {
		t.Fatal(d)
	}
}

func TestWaitEndsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		if !wait(t.Context(), time.Hour, nil) || time.Since(begun) != time.Hour {
			t.Fatal("did not wait")
		}
		early := make(chan struct{}, 1)
		poke(early)
		poke(early)
		if !wait(t.Context(), time.Hour, early) || time.Since(begun) != time.Hour {
			t.Fatal("was not woken")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if wait(ctx, time.Hour, nil) {
			t.Fatal("outlived its context")
		}
	})
}

func TestCut(t *testing.T) {
	for _, s := range []string{strings.Repeat("é", 100), strings.Repeat("x", 101), "\xff" + strings.Repeat("对", 50)} {
		for limit := 40; limit < 110; limit++ {
			got := cut(s, limit)
			if len(got) > limit || !json.Valid([]byte(strconv.Quote(got))) || strings.ToValidUTF8(got, "") != got {
				t.Fatalf("cut to %d: %q", limit, got)
			}
		}
	}
	if cut("short", 40) != "short" {
		t.Fatal("cut what fits")
	}
}

func FuzzVerify(f *testing.F) {
	for _, c := range readVectors(f).Vectors {
		f.Add(c.ID, c.Timestamp, c.Signature, []byte(c.Body))
	}
	f.Add("", "-0", "v1, v1,", []byte(nil))
	f.Add("a", "9223372036854775807", "v1,", []byte("{}"))
	key := bytes.Repeat([]byte{9}, 32)
	now := time.Unix(1796000000, 0)
	f.Fuzz(func(t *testing.T, id, timestamp, signature string, body []byte) {
		if verify(key, id, timestamp, signature, body, now) == nil {
			t.Fatal("a stranger's message passed")
		}
		err := verify(key, id, timestamp, sign(key, id, timestamp, body), body, now)
		if seconds, bad := strconv.ParseInt(timestamp, 10, 64); err == nil && (bad != nil || seconds < now.Unix()-300 || seconds > now.Unix()+300 || !isMessageID(id)) {
			t.Fatal("passed with a bad id or time")
		}
	})
}

func FuzzRunBody(f *testing.F) {
	for _, name := range []string{"run.json", "kill.json", "probe.json"} {
		raw, err := os.ReadFile(filepath.Join("..", "contract", "golden", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add([]byte(`{"type":"run","executions":[{"timeoutMs":9223372036854775807}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := parseRun(body)
		if err != nil {
			return
		}
		for _, e := range m.Executions {
			if e.ShardingID >= e.ShardingTotal || e.Fence.Attempt < 1 || e.BatchID == "" || time.Duration(e.TimeoutMs)*time.Millisecond < 0 {
				t.Fatalf("%+v", e)
			}
			c := Context{Context: t.Context(), run: &run{e: e}}
			var v struct{ PauseMs int }
			_ = c.Bind(&v)
			c.DueAt()
			if _, err := json.Marshal(endOf(&e, failed)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A number has one form here, so that the signed text is what was compared with the clock.
func TestTimestampHasOneForm(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 32)
	for _, ts := range []string{"01796000000", "+1796000000", " 1796000000", "1796000000.0", "1.796e9", "", "0", "-1", "99999999999999999999"} {
		if err := verify(key, "message-id", ts, sign(key, "message-id", ts, nil), nil, time.Unix(1796000000, 0)); !errors.Is(err, errSignature) {
			t.Errorf("%q: %v", ts, err)
		}
	}
}
