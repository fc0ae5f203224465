package clock

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// database is a clock that is read over a network.
type database struct {
	ahead time.Duration
	rtt   time.Duration
	err   error
}

func (d *database) now(context.Context) (time.Time, error) {
	wait := time.NewTimer(d.rtt / 2)
	<-wait.C
	at := time.Now().Add(d.ahead)
	wait.Reset(d.rtt / 2)
	<-wait.C
	return at, d.err
}

func follow(t *testing.T, d *database) *Referenced {
	t.Helper()
	r := New(d.now, slog.New(slog.DiscardHandler))
	require.NoError(t, r.Sample(t.Context()))
	return r
}

// ahead is how far ax time is ahead of the host's.
func ahead(r *Referenced) time.Duration { return time.Until(r.Now()) }

func TestTheFirstSampleIsTakenWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, off := range []time.Duration{0, 3 * time.Millisecond, -time.Hour, 48 * time.Hour} {
			r := follow(t, &database{ahead: off, rtt: 2 * time.Millisecond})
			require.Equal(t, off, ahead(r).Round(0))
			is := r.Status()
			require.InDelta(t, off, is.Drift, float64(2*time.Millisecond))
			require.Zero(t, is.Refused)
			require.Equal(t, off.Abs() > DriftWarn, is.Alarm())
		}
	})
}

func TestBeforeTheFirstSampleItIsTheHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{err: errors.New("away")}
		r := New(d.now, slog.New(slog.DiscardHandler))
		require.Error(t, r.Sample(t.Context()))
		require.Zero(t, ahead(r))
	})
}

// A small change is followed, but no sample moves ax time by more than 50 ms.
func TestASmallStepIsSlewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{rtt: time.Millisecond}
		r := follow(t, d)
		d.ahead = 400 * time.Millisecond
		last := ahead(r)
		for range 40 {
			require.NoError(t, r.Sample(t.Context()))
			now := ahead(r)
			require.LessOrEqual(t, (now - last).Abs(), 50*time.Millisecond)
			require.GreaterOrEqual(t, now, last, "it goes one way")
			last = now
		}
		require.Equal(t, 400*time.Millisecond, last)
		d.ahead = 0
		for range 40 {
			require.NoError(t, r.Sample(t.Context()))
		}
		require.Zero(t, ahead(r), "and back")
	})
}

// F12: a database that comes back with another host's time is not followed, whichever way it
// went, until its clock is right again.
func TestALargeStepIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, step := range []time.Duration{6 * time.Second, time.Hour, -2 * time.Hour, 24 * time.Hour} {
			d := &database{rtt: time.Millisecond}
			r := follow(t, d)
			d.ahead = step
			for range 20 {
				require.NoError(t, r.Sample(t.Context()))
				require.Zero(t, ahead(r))
			}
			require.InDelta(t, step, r.Status().Refused, float64(time.Second))
			require.True(t, r.Status().Alarm())
			d.ahead = 0
			require.NoError(t, r.Sample(t.Context()))
			require.Zero(t, r.Status().Refused)
			require.False(t, r.Status().Alarm())
			require.Zero(t, ahead(r))
		}
	})
}

// When database and host agree and ax time does not, ax time goes there at once: the monotonic clock
// stood still while the host slept, or both were set right.
func TestAStepThatTheHostAgreesWithIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, step := range []time.Duration{6 * time.Second, 2 * time.Hour, -2 * time.Hour} {
			r := follow(t, &database{rtt: time.Millisecond})
			before := ahead(r)
			r.add(t.Context(), sample{offset: step, rtt: time.Millisecond}, 0)
			require.Equal(t, step, ahead(r)-before)
			require.EqualValues(t, 1, r.Status().Steps)
			require.Zero(t, r.Status().Refused)
		}
	})
}

// Strobe: a database's clock that jumps to and fro between samples moves ax time by no more than a slew.
func TestAStrobeDoesNotShakeAxTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{rtt: time.Millisecond}
		r := follow(t, d)
		for i := range 50 {
			d.ahead = time.Duration(i%2) * 200 * time.Millisecond
			last := ahead(r)
			require.NoError(t, r.Sample(t.Context()))
			require.LessOrEqual(t, (ahead(r) - last).Abs(), slew)
			require.LessOrEqual(t, ahead(r).Abs(), 200*time.Millisecond)
		}
	})
}

// B5: the warning comes, and not more often than every thirty seconds.
func TestADriftIsLoggedEveryThirtySeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		d := &database{ahead: 600 * time.Millisecond, rtt: time.Millisecond}
		r := New(d.now, slog.New(slog.NewTextHandler(&out, nil)))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute-time.Second)
		defer cancel()
		require.NoError(t, r.Run(ctx))
		require.InDelta(t, 10, strings.Count(out.String(), "host clock and database clock differ"), 2)
		require.Contains(t, out.String(), "level=WARN")
	})
}

// The sample with the shortest way is believed: a slow answer says little of the time.
func TestTheQuickestSampleCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{ahead: 10 * time.Millisecond, rtt: time.Millisecond}
		r := follow(t, d)
		d.ahead, d.rtt = 40*time.Millisecond, 900*time.Millisecond
		for range 5 {
			require.NoError(t, r.Sample(t.Context()))
		}
		require.Equal(t, 10*time.Millisecond, ahead(r))
	})
}

// While the database is away ax time goes on by the monotonic clock.
func TestTimeGoesOnWithoutTheDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{ahead: time.Minute, rtt: time.Millisecond}
		r := follow(t, d)
		d.err = errors.New("away")
		at, host := r.Now(), time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		require.NoError(t, r.Run(ctx))
		require.GreaterOrEqual(t, time.Since(host), time.Hour)
		require.Equal(t, time.Since(host), r.Now().Sub(at))
	})
}

func TestManual(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m := NewManual(start)
	m.Advance(time.Second)
	require.Equal(t, start.Add(time.Second), m.Now())
	m.Advance(-time.Hour)
	require.Equal(t, start.Add(time.Second-time.Hour), m.Now())
	m.Set(start)
	require.Equal(t, start.UnixMilli(), Millis(m))
}
