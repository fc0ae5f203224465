package job_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/routing"
	"github.com/ax-scheduler/ax/internal/schedule"
)

func valid() job.Definition {
	return job.Definition{Name: "order sync", App: "order-service", Handler: "syncOrders", Triggers: []schedule.Spec{{Kind: schedule.Cron, Expr: "0 0 8 * * ?"}}}
}

func now() time.Time { return time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC) }

func TestDefaults(t *testing.T) {
	d := valid()
	require.Equal(t, 1, d.Normalize(0))
	require.NoError(t, d.Validate(now(), routing.New().Strategies()))
	require.Equal(t, job.Routing{Strategy: "roundRobin"}, d.Routing)
	require.Equal(t, job.Retry{Backoff: job.BackoffExponential, Initial: schedule.Duration(time.Second)}, d.Retry)
	require.Equal(t, job.Concurrency{Policy: job.OverlapSkip, Max: 1}, d.Concurrency)
	require.Equal(t, job.Misfire{Policy: job.MisfireOnce, Window: schedule.Duration(time.Hour), Max: 100, Order: job.OrderOldest, Rate: job.DefaultRate}, d.Misfire)
	require.Equal(t, "Asia/Shanghai", d.Triggers[0].Zone)
	require.Equal(t, "quartz", d.Triggers[0].Dialect)
	again := d
	require.Equal(t, 1, again.Normalize(1), "a definition that is whole stays as it is")
	require.Equal(t, d, again)
}

func TestTriggerNumbersAreGivenOnce(t *testing.T) {
	d := valid()
	d.Triggers = []schedule.Spec{{No: 2, Kind: schedule.FixedRate, Every: schedule.Duration(time.Minute)}, {Kind: schedule.FixedRate, Every: schedule.Duration(time.Minute)}}
	require.Equal(t, 8, d.Normalize(7), "7 was used before, by a trigger that is gone")
	require.Equal(t, 2, d.Triggers[0].No)
	require.Equal(t, 8, d.Triggers[1].No)
}

func TestWhatIsRefused(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(d *job.Definition)
		field string
		code  string
	}{
		{"no name", func(d *job.Definition) { d.Name = "  " }, "name", "required"},
		{"a long name", func(d *job.Definition) { d.Name = strings.Repeat("名", 129) }, "name", "too_long"},
		{"a name that is no text", func(d *job.Definition) { d.Name = "a\xff" }, "name", "not_utf8"},
		{"no handler", func(d *job.Definition) { d.Handler = "" }, "handler", "required"},
		{"an app with capitals", func(d *job.Definition) { d.App = "Order_Service" }, "app", "bad_name"},
		{"no app", func(d *job.Definition) { d.App = "" }, "app", "required"},
		{"a long description", func(d *job.Definition) { d.Description = strings.Repeat("x", 1025) }, "description", "too_long"},
		{"parameters beyond 64 KiB", func(d *job.Definition) { d.Params = strings.Repeat("x", 64<<10+1) }, "params", "too_long"},
		{"parameters that are no text", func(d *job.Definition) { d.Params = "\xc3\x28" }, "params", "not_utf8"},
		{"an unknown strategy", func(d *job.Definition) { d.Routing.Strategy = "roundrobin" }, "routing.strategy", "not_allowed"},
		{"negative retries", func(d *job.Definition) { d.Retry.Max = -1 }, "retry.max", "out_of_range"},
		{"too many retries", func(d *job.Definition) { d.Retry.Max = 101 }, "retry.max", "out_of_range"},
		{"an unknown back-off", func(d *job.Definition) { d.Retry.Backoff = "linear" }, "retry.backoff", "not_allowed"},
		{"a short first wait", func(d *job.Definition) { d.Retry.Initial = schedule.Duration(time.Millisecond) }, "retry.initial", "out_of_range"},
		{"a step that is too short", func(d *job.Definition) {
			d.Retry.Steps = []schedule.Duration{schedule.Duration(time.Second), schedule.Duration(time.Millisecond)}
		}, "retry.steps[1]", "out_of_range"},
		{"a time limit under a second", func(d *job.Definition) { d.Timeout = schedule.Duration(time.Millisecond) }, "timeout", "out_of_range"},
		{"an unknown overlap policy", func(d *job.Definition) { d.Concurrency.Policy = "queue" }, "concurrency.policy", "not_allowed"},
		{"a negative limit", func(d *job.Definition) { d.Concurrency.Max = -1 }, "concurrency.max", "out_of_range"},
		{"an unknown misfire policy", func(d *job.Definition) { d.Misfire.Policy = "fireNow" }, "misfire.policy", "not_allowed"},
		{"a latest start below the edge", func(d *job.Definition) { d.Misfire.Window = schedule.Duration(time.Second) }, "misfire.window", "out_of_range"},
		{"a priority of six", func(d *job.Definition) { d.Priority = 6 }, "priority", "out_of_range"},
		{"21 triggers", func(d *job.Definition) {
			d.Triggers = nil
			for range 21 {
				d.Triggers = append(d.Triggers, schedule.Spec{Kind: schedule.FixedRate, Every: schedule.Duration(time.Minute)})
			}
		}, "triggers", "too_many"},
		{"a trigger number twice", func(d *job.Definition) {
			d.Triggers = []schedule.Spec{{No: 1, Kind: schedule.FixedRate, Every: schedule.Duration(time.Minute)}, {No: 1, Kind: schedule.FixedRate, Every: schedule.Duration(time.Minute)}}
		}, "triggers[1].no", "trigger_number"},
		{"an unknown kind of trigger", func(d *job.Definition) { d.Triggers[0].Kind = "hourly" }, "triggers[0].kind", "not_allowed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := valid()
			tt.spoil(&d)
			d.Normalize(0)
			err := d.Validate(now(), routing.New().Strategies())
			var invalid *job.InvalidError
			require.ErrorAs(t, err, &invalid)
			require.Len(t, invalid.Fields, 1, err)
			require.Equal(t, tt.field, invalid.Fields[0].Field)
			require.Equal(t, tt.code, invalid.Fields[0].Code)
			require.NotEmpty(t, invalid.Fields[0].Message.EN)
			require.NotEmpty(t, invalid.Fields[0].Message.ZH)
		})
	}
	t.Run("all that is wrong is told at once", func(t *testing.T) {
		d := job.Definition{Triggers: []schedule.Spec{{Kind: schedule.Cron, Expr: "nonsense"}}, Priority: 9}
		d.Normalize(0)
		var invalid *job.InvalidError
		require.True(t, errors.As(d.Validate(now(), routing.New().Strategies()), &invalid))
		fields := map[string]bool{}
		for _, f := range invalid.Fields {
			fields[f.Field] = true
		}
		require.Equal(t, map[string]bool{"name": true, "handler": true, "app": true, "priority": true, "triggers[0].expr": true}, fields)
	})
	t.Run("the nearest value is offered", func(t *testing.T) {
		d := valid()
		d.Concurrency.Policy = "SKIP"
		d.Normalize(0)
		var invalid *job.InvalidError
		require.ErrorAs(t, d.Validate(now(), routing.New().Strategies()), &invalid)
		require.Equal(t, "skip", invalid.Fields[0].Suggestion)
	})
}

func TestNames(t *testing.T) {
	for _, good := range []string{"a", "order-service", "x.y_z-1", strings.Repeat("a", 64)} {
		require.Nil(t, job.ValidName("app", good), good)
	}
	for _, bad := range []string{"", "-a", "a-", "A", "a b", "a/b", "ä", strings.Repeat("a", 65), "a\n"} {
		require.NotNil(t, job.ValidName("app", bad), bad)
	}
	rapid.Check(t, func(t *rapid.T) {
		p := job.ValidName("app", rapid.String().Draw(t, "name"))
		if p != nil && p.Suggestion != "" {
			require.Nil(t, job.ValidName("app", p.Suggestion), "what is offered is taken")
		}
	})
}

func TestRetryDelay(t *testing.T) {
	s := func(n float64) schedule.Duration { return schedule.Duration(n * float64(time.Second)) }
	tests := []struct {
		name  string
		retry job.Retry
		want  []time.Duration
	}{
		{"none", job.Retry{Max: 0, Initial: s(1)}, nil},
		{"exponential doubles", job.Retry{Max: 4, Backoff: job.BackoffExponential, Initial: s(1)}, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}},
		{"fixed stays", job.Retry{Max: 3, Backoff: job.BackoffFixed, Initial: s(5)}, []time.Duration{5 * time.Second, 5 * time.Second, 5 * time.Second}},
		{"steps are taken as they are", job.Retry{Max: 9, Steps: []schedule.Duration{s(1), s(60), s(3)}}, []time.Duration{time.Second, time.Minute, 3 * time.Second}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []time.Duration
			for attempt := 1; ; attempt++ {
				wait, again := tt.retry.Delay(attempt, 0)
				if !again {
					break
				}
				got = append(got, wait)
			}
			require.Equal(t, tt.want, got)
			require.Equal(t, len(tt.want), tt.retry.Extra())
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		r := job.Retry{Max: rapid.IntRange(0, 100).Draw(t, "max"), Backoff: job.BackoffExponential, Initial: schedule.Duration(rapid.Int64Range(int64(100*time.Millisecond), int64(24*time.Hour)).Draw(t, "initial"))}
		last := time.Duration(0)
		for attempt := 1; attempt <= r.Max; attempt++ {
			wait, again := r.Delay(attempt, 0)
			require.True(t, again)
			require.GreaterOrEqual(t, wait, min(last, time.Hour), "a later wait is never shorter, up to the bound")
			require.LessOrEqual(t, wait, max(time.Hour, time.Duration(r.Initial)))
			last = wait
		}
		_, again := r.Delay(r.Max+1, 0)
		require.False(t, again)
	})
}

// B13: a delayed task whose job says nothing of retries has steps of its own.
func TestADelayedTaskHasItsOwnRetries(t *testing.T) {
	d := job.Definition{Retry: job.Retry{Max: job.DefaultRetries}}
	d.Normalize(0)
	steps := []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute}
	for i, want := range steps {
		got, ok := d.RetryOf(schedule.Delayed).Delay(i+1, 0)
		require.True(t, ok)
		require.Equal(t, want, got)
	}
	_, ok := d.RetryOf(schedule.Delayed).Delay(len(steps)+1, 0)
	require.False(t, ok)
	require.Equal(t, d.Retry, d.RetryOf(schedule.Cron))
	d.Retry.Max = 1
	require.Equal(t, d.Retry, d.RetryOf(schedule.Delayed), "what the job says counts")
}

// C306: rules by the code that an attempt ended with; the first that fits counts.
func TestRetryRules(t *testing.T) {
	r := job.Retry{Rules: []job.RetryRule{
		{Codes: []string{"ACCOUNT.LOCKED", "timed_out"}, Do: job.DoNever},
		{Codes: []string{"ACCOUNT.*"}, Do: job.DoNow},
	}}
	for code, want := range map[string]string{
		"ACCOUNT.LOCKED": job.DoNever, "timed_out": job.DoNever, "ACCOUNT.BUSY": job.DoNow, "ACCOUNT.": job.DoNow, "ACCOUNT": "", "account.busy": "", "handler_failed": "", "": "",
	} {
		require.Equal(t, want, r.Rule(code), code)
	}
	d := job.Definition{Name: "j", App: "a", Handler: "h", Retry: job.Retry{Max: 1, Jitter: 101, Rules: []job.RetryRule{{Codes: []string{"no blanks"}, Do: "later"}, {Do: job.DoNow}}}, Wait: job.Wait{Limit: 1, Do: "drop"}}
	d.Normalize(0)
	var bad *job.InvalidError
	require.ErrorAs(t, d.Validate(time.Now(), []string{"roundRobin"}), &bad)
	var fields []string
	for _, f := range bad.Fields {
		fields = append(fields, f.Field)
		require.NotEmpty(t, f.Message.EN)
		require.NotEmpty(t, f.Message.ZH)
	}
	require.ElementsMatch(t, []string{"retry.jitter", "retry.rules[0].do", "retry.rules[0].codes", "retry.rules[1].codes", "wait.limit", "wait.do"}, fields)
}

// B13: jitter only ever makes a wait longer, by no more than it says; steps are taken as they are.
func TestRetryJitter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := job.Retry{Max: 20, Backoff: rapid.SampledFrom([]string{job.BackoffExponential, job.BackoffFixed}).Draw(t, "backoff"), Initial: schedule.Duration(time.Second), Jitter: rapid.IntRange(0, 100).Draw(t, "jitter")}
		attempt, chance := rapid.IntRange(1, 20).Draw(t, "attempt"), rapid.Float64Range(0, 1).Draw(t, "chance")
		plain, _ := r.Delay(attempt, 0)
		wait, again := r.Delay(attempt, chance)
		require.True(t, again)
		require.GreaterOrEqual(t, wait, plain)
		require.LessOrEqual(t, wait, plain+plain*time.Duration(r.Jitter)/100)
		most, _ := r.Delay(attempt, 1)
		require.InDelta(t, float64(plain)*(1+float64(r.Jitter)/100), float64(most), 1e6, "chance spreads it over all of the jitter")
		r.Steps = []schedule.Duration{schedule.Duration(time.Minute)}
		wait, _ = r.Delay(1, chance)
		require.Equal(t, time.Minute, wait)
	})
}
