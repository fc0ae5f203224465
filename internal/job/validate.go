package job

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ax-scheduler/ax/internal/filter"
	"github.com/ax-scheduler/ax/internal/message"
	"github.com/ax-scheduler/ax/internal/routing"
	"github.com/ax-scheduler/ax/internal/schedule"
)

// InvalidError says all that is wrong with a definition, one entry per field.
type InvalidError struct {
	Fields []*message.Invalid
}

// Error lists the fields.
func (e *InvalidError) Error() string {
	parts := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		parts[i] = f.Error()
	}
	return strings.Join(parts, "; ")
}

// Normalize fills in the defaults of everything left out and numbers the triggers.
// Numbers once given are kept; a new trigger gets the next number after used, which is the
// highest number that the job ever gave. It returns the new highest number.
func (d *Definition) Normalize(used int) int {
	d.Name = strings.TrimSpace(d.Name)
	d.App = strings.TrimSpace(d.App)
	d.Handler = strings.TrimSpace(d.Handler)
	if d.Routing.Strategy == "" {
		d.Routing.Strategy = "roundRobin"
	}
	if d.Retry.Backoff == "" && len(d.Retry.Steps) == 0 {
		d.Retry.Backoff = BackoffExponential
	}
	if d.Retry.Initial == 0 && len(d.Retry.Steps) == 0 {
		d.Retry.Initial = schedule.Duration(time.Second)
	}
	if d.Wait.Do == "" {
		d.Wait.Do = WaitFail
	}
	if d.Concurrency.Policy == "" {
		d.Concurrency.Policy = OverlapSkip
	}
	if d.Concurrency.Max == 0 && d.Concurrency.Policy != OverlapAllow {
		d.Concurrency.Max = 1
	}
	if d.Misfire.Policy == "" {
		d.Misfire.Policy = MisfireOnce
	}
	if d.Misfire.Window == 0 {
		d.Misfire.Window = schedule.Duration(time.Hour)
	}
	if d.Misfire.Max == 0 {
		d.Misfire.Max = 100
	}
	if d.Misfire.Order == "" {
		d.Misfire.Order = OrderOldest
	}
	if d.Misfire.Rate == 0 {
		d.Misfire.Rate = DefaultRate
	}
	for i := range d.Triggers {
		t := &d.Triggers[i]
		if t.Kind == schedule.Cron && t.Dialect == "" {
			t.Dialect = "quartz"
		}
		if t.Zone == "" {
			t.Zone = "Asia/Shanghai"
		}
		if t.Kind == schedule.Cron && t.ClockChange == "" {
			t.ClockChange = "once"
		}
		if t.No == 0 {
			used++
			t.No = used
		}
		used = max(used, t.No)
	}
	return used
}

// Validate checks a normalized definition against the clock: a schedule that is
// already over is refused. It returns *InvalidError with every field that is wrong, or nil.
// strategies are the routing strategies that exist.
func (d *Definition) Validate(now time.Time, strategies []string) error {
	var bad []*message.Invalid
	refuse := func(code, field, token, en, zh, suggestion string) {
		bad = append(bad, &message.Invalid{Code: code, Field: field, Token: token, Message: message.Text{EN: en, ZH: zh}, Suggestion: suggestion})
	}
	oneOf := func(field, value string, allowed ...string) {
		if slices.Contains(allowed, value) {
			return
		}
		list := strings.Join(allowed, ", ")
		refuse("not_allowed", field, value, fmt.Sprintf("%q is not one of %s.", value, list), fmt.Sprintf("“%s” 不在允许的取值内：%s。", value, list), nearest(value, allowed))
	}
	length := func(field, value string, limit int, required bool) {
		n := utf8.RuneCountInString(value)
		switch {
		case !utf8.ValidString(value):
			refuse("not_utf8", field, "", "This is not valid UTF-8 text.", "不是有效的 UTF-8 文本。", "")
		case required && n == 0:
			refuse("required", field, "", "This is required.", "此项必填。", "")
		case n > limit:
			refuse("too_long", field, "", fmt.Sprintf("At most %d characters; got %d.", limit, n), fmt.Sprintf("最多 %d 个字符，当前 %d 个。", limit, n), "")
		}
	}
	between := func(field string, value, low, high int) {
		if value < low || value > high {
			refuse("out_of_range", field, fmt.Sprint(value), fmt.Sprintf("%d is out of range %d-%d.", value, low, high), fmt.Sprintf("%d 超出范围 %d-%d。", value, low, high), "")
		}
	}
	span := func(field string, value schedule.Duration, low, high time.Duration) {
		if v := time.Duration(value); v < low || v > high {
			refuse("out_of_range", field, v.String(), fmt.Sprintf("%s is out of range %s to %s.", v, low, high), fmt.Sprintf("%s 超出范围 %s 至 %s。", v, low, high), "")
		}
	}

	length("name", d.Name, MaxName, true)
	length("handler", d.Handler, MaxHandler, true)
	length("description", d.Description, MaxDescription, false)
	if p := ValidName("app", d.App); p != nil {
		bad = append(bad, p)
	}
	if len(d.Params) > MaxParams {
		refuse("too_long", "params", "", fmt.Sprintf("At most %d bytes; got %d.", MaxParams, len(d.Params)), fmt.Sprintf("最多 %d 字节，当前 %d 字节。", MaxParams, len(d.Params)), "")
	} else if !utf8.ValidString(d.Params) {
		refuse("not_utf8", "params", "", "This is not valid UTF-8 text.", "不是有效的 UTF-8 文本。", "")
	}
	if p := ValidSecrets("params", d.Params); p != nil {
		bad = append(bad, p)
	}
	oneOf("routing.strategy", d.Routing.Strategy, strategies...)
	length("routing.hashKey", d.Routing.HashKey, MaxName, false)
	for _, check := range []func() *message.Invalid{
		func() *message.Invalid { return routing.CheckSelector(d.Routing.Selector) },
		func() *message.Invalid {
			if d.Routing.Rule == "" {
				return nil
			}
			return routing.CheckRule(d.Routing.Rule)
		},
	} {
		if inv := check(); inv != nil {
			inv.Field = "routing." + inv.Field
			bad = append(bad, inv)
		}
	}
	between("routing.shards", d.Routing.Shards, 0, MaxShards)
	between("routing.perExecutor", d.Routing.PerExecutor, 0, MaxPerExecutor)
	between("routing.quorum", d.Routing.Quorum, 0, 100)
	if r := d.Routing; r.PerExecutor > 0 && (r.Strategy != routing.Broadcast || r.Shards > 0) {
		refuse("not_allowed", "routing.perExecutor", fmt.Sprint(r.PerExecutor), "It is for the strategy shardingBroadcast without a fixed number of shards; leave one of them out.", "仅用于未指定固定分片数的 shardingBroadcast 策略，请去掉其中之一。", "")
	}
	if r := d.Routing; r.Quorum > 0 && r.Strategy != routing.Broadcast && r.Shards == 0 {
		refuse("not_allowed", "routing.quorum", fmt.Sprint(r.Quorum), "A quorum is of shards; set routing.shards or the strategy shardingBroadcast, or leave it out.", "法定比例针对分片；请设置 routing.shards 或 shardingBroadcast 策略，或去掉此项。", "")
	}
	if c := d.Resources.CPU; !(c >= 0 && c <= MaxCPU) {
		refuse("out_of_range", "resources.cpu", fmt.Sprint(c), fmt.Sprintf("%v is out of range 0-%v cores.", c, MaxCPU), fmt.Sprintf("%v 超出范围：0-%v 核。", c, MaxCPU), "")
	}
	between("resources.memoryMB", int(d.Resources.MemoryMB), 0, MaxMemoryMB)
	between("resources.slots", d.Resources.Slots, 0, MaxSlots)
	if len(d.Limits) > MaxLimits {
		refuse("too_many", "limits", fmt.Sprint(len(d.Limits)), fmt.Sprintf("At most %d limits; got %d.", MaxLimits, len(d.Limits)), fmt.Sprintf("最多 %d 个限额，当前 %d 个。", MaxLimits, len(d.Limits)), "")
	}
	for i, name := range d.Limits {
		at := fmt.Sprintf("limits[%d]", i)
		if p := ValidName(at, strings.TrimPrefix(name, SharedLimit)); p != nil {
			bad = append(bad, p)
		} else if slices.Contains(d.Limits[:i], name) {
			refuse("double", at, name, "Each limit is named once.", "每个限额只能填写一次。", "")
		}
	}
	between("retry.max", d.Retry.Max, 0, MaxRetries)
	if len(d.Retry.Steps) == 0 {
		oneOf("retry.backoff", d.Retry.Backoff, BackoffExponential, BackoffFixed)
		span("retry.initial", d.Retry.Initial, 100*time.Millisecond, 24*time.Hour)
	} else {
		between("retry.steps", len(d.Retry.Steps), 1, MaxRetries)
		for i, s := range d.Retry.Steps {
			span(fmt.Sprintf("retry.steps[%d]", i), s, 100*time.Millisecond, 30*24*time.Hour)
		}
	}
	between("retry.jitter", d.Retry.Jitter, 0, 100)
	between("retry.rules", len(d.Retry.Rules), 0, MaxRetryRules)
	for i, rule := range d.Retry.Rules {
		at := fmt.Sprintf("retry.rules[%d]", i)
		oneOf(at+".do", rule.Do, DoNever, DoNow)
		between(at+".codes", len(rule.Codes), 1, MaxRetryCodes)
		for _, c := range rule.Codes {
			if !ValidCode(strings.TrimSuffix(c, "*")) {
				refuse("bad_code", at+".codes", c, "A code has 1 to 64 characters of letters, digits, '.', '_' and '-', and may end in '*'.", "代码为 1 至 64 个字符，只能使用字母、数字、“.”、“_”、“-”，末尾可加“*”。", "")
			}
		}
	}
	if d.Wait.Limit != 0 {
		span("wait.limit", d.Wait.Limit, time.Second, 7*24*time.Hour)
	}
	oneOf("wait.do", d.Wait.Do, WaitFail, WaitSkip)
	if d.Timeout != 0 {
		span("timeout", d.Timeout, time.Second, 30*24*time.Hour)
	}
	oneOf("concurrency.policy", d.Concurrency.Policy, OverlapSkip, OverlapQueueOne, OverlapQueueAll, OverlapCover, OverlapAllow)
	if d.Concurrency.Policy == OverlapAllow {
		between("concurrency.max", d.Concurrency.Max, 0, 10_000)
	} else {
		between("concurrency.max", d.Concurrency.Max, 1, 10_000)
	}
	between("concurrency.queue", d.Concurrency.Queue, 0, MaxQueue)
	if p := d.Concurrency.Policy; d.Concurrency.Queue > 0 && p != OverlapQueueAll && p != OverlapAllow {
		refuse("not_allowed", "concurrency.queue", fmt.Sprint(d.Concurrency.Queue), "Only with the policies queueAll and allow more than one batch waits; leave it out.", "仅 queueAll 与 allow 策略会有多个批次等待，请去掉此项。", "")
	}
	oneOf("misfire.policy", d.Misfire.Policy, MisfireSkip, MisfireOnce, MisfireAll)
	span("misfire.window", d.Misfire.Window, MisfireAfter, 366*24*time.Hour)
	between("misfire.max", d.Misfire.Max, 1, 100_000)
	oneOf("misfire.order", d.Misfire.Order, OrderOldest, OrderNewest)
	if p := ValidRate("misfire.rate", d.Misfire.Rate, MinRate, MaxRate); p != nil {
		bad = append(bad, p)
	}
	between("priority", d.Priority, 0, MaxPriority)
	if len(d.Triggers) > MaxTriggers {
		refuse("too_many", "triggers", fmt.Sprint(len(d.Triggers)), fmt.Sprintf("At most %d triggers; got %d.", MaxTriggers, len(d.Triggers)), fmt.Sprintf("最多 %d 个触发器，当前 %d 个。", MaxTriggers, len(d.Triggers)), "")
	}
	seen := map[int]bool{}
	for i, t := range d.Triggers {
		at := fmt.Sprintf("triggers[%d]", i)
		if t.No < 1 || seen[t.No] {
			refuse("trigger_number", at+".no", fmt.Sprint(t.No), "Trigger numbers are given once; leave it out for a new trigger.", "触发器编号不可重复；新触发器请不要填写编号。", "")
		}
		seen[t.No] = true
		switch t.Kind {
		case schedule.Cron, schedule.FixedRate, schedule.FixedDelay, schedule.Once:
		case schedule.Event:
			if t.Filter != "" {
				if _, inv := filter.Compile(t.Filter); inv != nil {
					inv.Field = at + "." + inv.Field
					bad = append(bad, inv)
				}
			}
		case schedule.Delayed, schedule.Dependency, schedule.Manual, schedule.API:
			fallthrough
		default:
			oneOf(at+".kind", string(t.Kind), string(schedule.Cron), string(schedule.FixedRate), string(schedule.FixedDelay), string(schedule.Once), string(schedule.Event))
			continue
		}
		s, err := schedule.Compile(t)
		var inv *message.Invalid
		switch {
		case errors.As(err, &inv):
			moved := *inv
			moved.Field = at + "." + inv.Field
			bad = append(bad, &moved)
		case err != nil:
			refuse("not_understood", at, "", err.Error()+".", err.Error()+"。", "")
		default:
			if over := s.Over(now); over != nil {
				moved := *over
				moved.Field = at + "." + over.Field
				bad = append(bad, &moved)
			}
		}
	}
	if len(bad) > 0 {
		return &InvalidError{Fields: bad}
	}
	return nil
}

// ValidRate checks a drain rate.
func ValidRate(field string, rate, low, high float64) *message.Invalid {
	if rate >= low && rate <= high { // false for what is no number
		return nil
	}
	text := strconv.FormatFloat(rate, 'g', -1, 64)
	return &message.Invalid{Code: "out_of_range", Field: field, Token: text, Message: message.Text{
		EN: fmt.Sprintf("%s is out of range %v-%v firings a second.", text, low, high), ZH: fmt.Sprintf("%s 超出范围：每秒 %v-%v 次触发。", text, low, high),
	}}
}

var codePattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// ValidCode tells whether a handler may fail with a code.
func ValidCode(code string) bool { return codePattern.MatchString(code) }

var namePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?$`)

// ValidName checks the name of an app or a namespace: it is part of URLs, headers and
// metric labels, so it is plain.
func ValidName(field, name string) *message.Invalid {
	if namePattern.MatchString(name) {
		return nil
	}
	code := "bad_name"
	if name == "" {
		code = "required"
	}
	suggestion := strings.Trim(regexp.MustCompile(`[^a-z0-9._-]+`).ReplaceAllString(strings.ToLower(name), "-"), "-._")
	if !namePattern.MatchString(suggestion) {
		suggestion = ""
	}
	return &message.Invalid{
		Code: code, Field: field, Token: name, Suggestion: suggestion,
		Message: message.Text{
			EN: "1 to 64 characters of a-z, 0-9, '.', '_' and '-', with a letter or digit at both ends.",
			ZH: "1 至 64 个字符，只能使用 a-z、0-9、“.”、“_”、“-”，且首尾为字母或数字。",
		},
	}
}

// nearest offers the allowed value that differs only in case or in a prefix.
func nearest(value string, allowed []string) string {
	v := strings.ToLower(value)
	for _, a := range allowed {
		if l := strings.ToLower(a); v != "" && (l == v || strings.HasPrefix(l, v) || strings.HasPrefix(v, l)) {
			return a
		}
	}
	return ""
}
