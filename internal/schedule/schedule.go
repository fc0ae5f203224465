// Package schedule says when a trigger is due: cron expressions in the Quartz and Unix
// dialects, descriptors and fixed rates, each in its time zone.
//
// It is pure: told the time, it computes. What is done with a due time is the business
// of package trigger; the sentences of its refusals have the form of package message.
// docs/schedule.md is the reference for users.
package schedule

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ax-scheduler/ax/internal/message"
)

// Kind is what makes a trigger fire.
type Kind string

// The kinds of a trigger.
const (
	Cron       Kind = "cron"       // times of a cron expression or descriptor
	FixedRate  Kind = "fixedRate"  // anchor + k × every
	FixedDelay Kind = "fixedDelay" // every after the end of the last run
	Once       Kind = "once"       // one instant
	Event      Kind = "event"      // something that arrives
	Delayed    Kind = "delayed"    // one task at one instant, asked for by a program or a person
	Dependency Kind = "dependency" // the end of other jobs
	Manual     Kind = "manual"     // a person
	API        Kind = "api"        // a program
)

// timed tells whether a clock fires the kind.
func (k Kind) timed() bool { return k == Cron || k == FixedRate || k == FixedDelay || k == Once }

// The dialects of an expression.
const (
	Quartz     = "quartz"     // 6 or 7 fields from the second; weekday 1 is Sunday; the default
	Unix       = "unix"       // 5 fields from the minute; weekday 0 is Sunday
	Descriptor = "descriptor" // @daily, @every 90s and the like
)

// What becomes of a fixed time of day when clocks change. Expressions with *, a range
// or a step in second, minute or hour are beats, not appointments: they keep going in
// real time under all of these but ClockQuartz.
const (
	ClockOnce   = "once"   // gap: at its end; overlap: on the first pass; the default
	ClockSkip   = "skip"   // gap: not that day; overlap: on the first pass
	ClockBoth   = "both"   // gap: not that day; overlap: on both passes
	ClockQuartz = "quartz" // gap: not that day; overlap: on the second pass, beats too
)

const (
	// MinEvery is the shortest interval: below it a schedule is a loop.
	MinEvery = Duration(100 * time.Millisecond)
	// MaxEvery is the longest interval: a leap year.
	MaxEvery = Duration(366 * 24 * time.Hour)

	// longestShift bounds the gaps that ClockOnce closes. A zone that changed sides of
	// the date line lost a whole day, and with it that day's fires.
	longestShift = 3 * 60 * 60
)

// Duration is a span whose JSON is a string as Go writes it: "5s", "1m30s", "36h". It
// is not a number, whose unit one would have to guess.
type Duration time.Duration

// String is the JSON form: "1h", not "1h0m0s".
func (d Duration) String() string {
	text := time.Duration(d).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// MarshalJSON implements json.Marshaler.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// UnmarshalJSON reads a string that time.ParseDuration accepts; null leaves d alone.
// It refuses all else as *message.Invalid with Field "every".
func (d *Duration) UnmarshalJSON(data []byte) error {
	text := string(data)
	if text == "null" {
		return nil
	}
	var quoted string
	if err := json.Unmarshal(data, &quoted); err != nil {
		return refuseField("every", codeIntervalInvalid, text, "",
			fmt.Sprintf("%s is not a duration; write text with a unit, such as \"5s\", \"90s\" or \"1h30m\".", text),
			fmt.Sprintf("%s 不是时长；请写带单位的文本，例如 \"5s\"、\"90s\" 或 \"1h30m\"。", text))
	}
	parsed, refusal := parseEvery("every", quoted)
	if refusal != nil {
		return refusal
	}
	*d = parsed
	return nil
}

func parseEvery(field, text string) (Duration, *message.Invalid) {
	parsed, err := time.ParseDuration(text)
	if err != nil {
		suggestion := ""
		var n int
		var unit string
		if count, _ := fmt.Sscanf(text, "%d%s", &n, &unit); count == 2 && n > 0 && n <= 366 &&
			(strings.HasPrefix(unit, "d") || strings.HasPrefix(unit, "天")) {
			suggestion = fmt.Sprintf("%dh", n*24)
		} else if count == 1 && n > 0 {
			suggestion = fmt.Sprintf("%ds", n)
		}
		en := fmt.Sprintf("%s is not a duration; write a number and a unit (ms, s, m, h), such as 5s or 1h30m.", text)
		zh := fmt.Sprintf("%s 不是时长；请写数字加单位（ms、s、m、h），例如 5s 或 1h30m。", text)
		if suggestion != "" {
			en += fmt.Sprintf(" Did you mean %s?", suggestion)
			zh += fmt.Sprintf("是否为 %s？", suggestion)
			if field == "expr" {
				suggestion = "@every " + suggestion
			}
		}
		return 0, refuseField(field, codeIntervalInvalid, text, suggestion, en, zh)
	}
	return Duration(parsed), nil
}

// Spec is a trigger as a job holds it.
type Spec struct {
	// No is the number of the trigger within its job, from 1 on; 0 when it has none yet.
	No   int  `json:"no,omitempty"`
	Kind Kind `json:"kind"` // empty is Cron

	Expr    string `json:"expr,omitempty"`    // Cron only
	Dialect string `json:"dialect,omitempty"` // Cron only; empty is Quartz. A text that starts with @ is a descriptor in each dialect.
	Zone    string `json:"zone,omitempty"`    // an IANA name; empty is DefaultZone
	// ClockChange is one of the Clock constants; empty is ClockOnce.
	ClockChange string `json:"clockChange,omitempty"`

	// Every is the interval of FixedRate and FixedDelay: whole milliseconds from
	// MinEvery to MaxEvery.
	Every Duration `json:"every,omitempty"`
	// Anchor is a point of the grid of FixedRate and @every, which extends before it
	// as well as after it; it is cut to milliseconds. Default is Start, and without one
	// 1970-01-01T00:00:00Z, so that neither a restart nor an edit moves the grid.
	Anchor *time.Time `json:"anchor,omitempty"`

	// At is the only due time of Once: an instant, not a reading of the zone's clock, so
	// that no clock change can move it. What is finer than a millisecond is rounded up.
	At *time.Time `json:"at,omitempty"`

	// Start and End bound the fires of Cron, FixedRate and FixedDelay, both included.
	Start *time.Time `json:"start,omitempty"`
	End   *time.Time `json:"end,omitempty"`

	// Filter is a condition on the event, of Event only; empty lets each pass. It is not looked at
	// here: package filter knows what it says.
	Filter string `json:"filter,omitempty"`

	// Jitter spreads what is due at one instant over so much time: whole milliseconds, less than a day.
	Jitter Duration `json:"jitter,omitempty"`

	// Calendars name what is left out: a fire that any of them covers does not happen; a FixedDelay waits
	// for the end of it.
	Calendars []string `json:"calendars,omitempty"`
	// Excluded are the calendars as they are in force, in the order of the names. They are kept with
	// the spec, so that nothing has to be looked up when it is fired and it can be told later what was
	// left out when.
	Excluded []Calendar `json:"excluded,omitempty"`
}

// Schedule is a compiled Spec. It is immutable and safe for concurrent use.
type Schedule struct {
	spec    Spec // with its defaults filled in
	zone    *zone
	cron    matcher // for isCron
	isCron  bool
	unix    bool
	every   time.Duration
	gridMs  int64 // FixedRate and @every: the interval; 0 for none
	anchor  int64 // milliseconds since the epoch
	onceMs  int64 // Once: its due time in milliseconds since the epoch
	inGap   bool  // a fixed time within a gap fires at its end
	first   bool  // within an overlap only the first pass counts
	second  bool  // within an overlap only the second pass counts
	bounded bool  // Start or End is set

	excluded []*exclusion
}

// Compile checks a spec and makes it ready for Next. It needs no clock: a spec that
// never fires at any time is refused, one whose fires are all past is not (see Over).
// The error is a *message.Invalid whose Field is the JSON name of the setting.
func Compile(spec Spec) (*Schedule, error) {
	s, refusal := compile(spec)
	if refusal != nil {
		return nil, refusal
	}
	return s, nil
}

func compile(spec Spec) (*Schedule, *message.Invalid) {
	if spec.Kind == "" {
		spec.Kind = Cron
	}
	if spec.Zone == "" {
		spec.Zone = DefaultZone
	}
	if spec.ClockChange == "" {
		spec.ClockChange = ClockOnce
	}
	z, err := loadZone(spec.Zone)
	if err != nil {
		var refusal *message.Invalid
		errors.As(err, &refusal)
		return nil, refusal
	}
	s := &Schedule{spec: spec, zone: z, bounded: spec.Start != nil || spec.End != nil}
	if spec.Start != nil && spec.End != nil && spec.End.Before(*spec.Start) {
		return nil, refuseField("end", codeWindow, spec.End.Format(time.RFC3339), "",
			"end is before start; nothing would fire.", "结束时间早于开始时间，不会触发。")
	}
	switch spec.ClockChange {
	case ClockOnce, ClockSkip, ClockBoth, ClockQuartz:
	default:
		return nil, refuseField("clockChange", codeClockChange, spec.ClockChange, ClockOnce,
			fmt.Sprintf("%s is no policy for clock changes; write once, skip, both or quartz.", spec.ClockChange),
			fmt.Sprintf("%s 不是时钟调整策略；请写 once、skip、both 或 quartz。", spec.ClockChange))
	}
	if refusal := refuseForeign(spec); refusal != nil {
		return nil, refusal
	}
	if refusal := refuseJitter(spec); refusal != nil {
		return nil, refusal
	}
	if refusal := s.compileCalendars(); refusal != nil {
		return nil, refusal
	}
	switch spec.Kind {
	case Cron:
		return s, s.compileCron()
	case Once:
		return s, s.compileOnce()
	case FixedRate, FixedDelay:
		if spec.Every == 0 {
			return nil, refuseField("every", codeIntervalMissing, "", "5m",
				"every is missing; write an interval such as 5m.", "缺少 every；请写间隔，例如 5m。")
		}
		if refusal := refuseInterval("every", spec.Every, spec.Every.String()); refusal != nil {
			return nil, refusal
		}
		s.every = time.Duration(spec.Every)
		if spec.Kind == FixedRate {
			s.gridMs = s.every.Milliseconds()
			s.setAnchor()
		}
		return s, nil
	case Event, Delayed, Dependency, Manual, API:
		return s, nil
	}
	return nil, refuseField("kind", codeKindUnknown, string(spec.Kind), string(Cron),
		fmt.Sprintf("%s is no kind of trigger; write cron, fixedRate, fixedDelay, once, event, dependency, manual or api.", spec.Kind),
		fmt.Sprintf("%s 不是触发器类型；请写 cron、fixedRate、fixedDelay、once、event、dependency、manual 或 api。", spec.Kind))
}

// refuseForeign refuses a setting that would have no effect: whoever wrote it expects one.
func refuseForeign(spec Spec) *message.Invalid {
	field, token := "", ""
	switch {
	case spec.Kind != Event && spec.Filter != "":
		field, token = "filter", spec.Filter
	case spec.Kind == Event && spec.Start != nil:
		field, token = "start", spec.Start.Format(time.RFC3339)
	case spec.Kind == Event && spec.End != nil:
		field, token = "end", spec.End.Format(time.RFC3339)
	case (spec.Kind == Cron || spec.Kind == Once || spec.Kind == Event) && spec.Every != 0:
		field, token = "every", spec.Every.String()
	case spec.Kind != Cron && spec.Expr != "":
		field, token = "expr", spec.Expr
	case spec.Kind != Once && spec.At != nil:
		field, token = "at", spec.At.Format(time.RFC3339)
	case spec.Kind == Once && spec.Start != nil:
		field, token = "start", spec.Start.Format(time.RFC3339)
	case spec.Kind == Once && spec.End != nil:
		field, token = "end", spec.End.Format(time.RFC3339)
	case (spec.Kind == FixedDelay || spec.Kind == Once || spec.Kind == Event) && spec.Anchor != nil:
		field, token = "anchor", spec.Anchor.Format(time.RFC3339)
	case !spec.Kind.timed() && spec.Jitter != 0:
		field, token = "jitter", spec.Jitter.String()
	case (!spec.Kind.timed() || spec.Kind == Once) && len(spec.Calendars) > 0:
		field, token = "calendars", spec.Calendars[0]
	default:
		return nil
	}
	return refuseField(field, codeForeignSetting, token, "",
		fmt.Sprintf("%s has no meaning for a trigger of kind %s.", field, spec.Kind),
		fmt.Sprintf("%s 对 %s 类型的触发器没有意义。", field, spec.Kind))
}

func refuseInterval(field string, every Duration, token string) *message.Invalid {
	if every < MinEvery || every > MaxEvery {
		return refuseField(field, codeIntervalRange, token, "",
			fmt.Sprintf("the interval %s is out of range %s-%s.", token, MinEvery, MaxEvery),
			fmt.Sprintf("间隔 %s 超出范围 %s-%s。", token, MinEvery, MaxEvery))
	}
	if every%Duration(time.Millisecond) != 0 {
		return refuseField(field, codeIntervalRange, token, (every - every%Duration(time.Millisecond)).String(),
			fmt.Sprintf("the interval %s is finer than a millisecond.", token),
			fmt.Sprintf("间隔 %s 的精度超过毫秒。", token))
	}
	return nil
}

func (s *Schedule) compileOnce() *message.Invalid {
	at := s.spec.At
	if at == nil {
		return refuseField("at", codeAtMissing, "", "",
			"at is missing; write the time with its offset, such as 2026-12-24T18:00:00+08:00.",
			"缺少 at；请写带时区偏移的时间，例如 2026-12-24T18:00:00+08:00。")
	}
	if at.Unix() < beforeAll || at.Unix() >= afterAll {
		return refuseField("at", codeOutOfRange, at.Format(time.RFC3339), "",
			"at is out of range; write a time from 1970 to 2199.", "at 超出范围；请写 1970 年至 2199 年之间的时间。")
	}
	// Rounded up, since cutting would make it early.
	s.onceMs = ceilMillis(*at)
	return nil
}

func ceilMillis(t time.Time) int64 {
	ms := t.UnixMilli()
	if t.After(time.UnixMilli(ms)) {
		ms++
	}
	return ms
}

func (s *Schedule) setAnchor() {
	anchor := s.spec.Anchor
	if anchor == nil {
		anchor = s.spec.Start
	}
	if anchor != nil {
		s.anchor = anchor.UnixMilli()
		// Where the grid lies is all that counts, and a far anchor would overflow.
		s.anchor %= s.gridMs
	}
}

func (s *Schedule) compileCron() *message.Invalid {
	dialect, refusal := dialectOf(s.spec.Dialect)
	if refusal != nil {
		return refusal
	}
	text := s.spec.Expr
	isDescriptor := strings.HasPrefix(strings.TrimSpace(text), "@")
	if refusal := checkCharacters(text); refusal != nil {
		return refusal
	}
	if dialect == Descriptor && !isDescriptor && strings.TrimSpace(text) != "" {
		return refuseField("expr", codeUnknownDescriptor, text, "@daily",
			fmt.Sprintf("%s is no descriptor; write @hourly, @daily, @weekly, @monthly, @yearly or @every 90s, or choose another dialect.", text),
			fmt.Sprintf("%s 不是描述符；请写 @hourly、@daily、@weekly、@monthly、@yearly 或 @every 90s，或选择其他方言。", text))
	}
	if isDescriptor {
		s.spec.Dialect = Descriptor
		cron, every, refusal := parseDescriptor(text)
		if refusal != nil {
			return refusal
		}
		if every != 0 {
			s.every = time.Duration(every)
			s.gridMs = s.every.Milliseconds()
			s.setAnchor()
			return nil
		}
		text, dialect = cron, Quartz
	} else {
		s.spec.Dialect = dialect
	}
	if s.spec.Anchor != nil {
		return refuseField("anchor", codeForeignSetting, s.spec.Anchor.Format(time.RFC3339), "",
			"anchor has no meaning for a cron expression; it belongs to fixedRate and @every.",
			"anchor 对 cron 表达式没有意义，它用于 fixedRate 和 @every。")
	}
	s.unix = dialect == Unix
	e, refusal := parseCron(text, s.unix)
	if refusal != nil {
		return refusal
	}
	s.isCron, s.cron = true, newMatcher(e)
	s.setPolicy()
	if s.cron.next(0) == never {
		return refuseNever(e, &s.cron)
	}
	if _, ok := s.nextSecond(beforeAll); !ok {
		return refuseField("expr", codeNeverFires, text, "",
			"This schedule never fires: its only time falls into a clock change of "+s.spec.Zone+" and does not exist.",
			"该表达式永远不会触发：其唯一的时刻落在 "+s.spec.Zone+" 的时钟调整中，并不存在。")
	}
	return nil
}

func (s *Schedule) setPolicy() {
	policy := s.spec.ClockChange
	s.inGap = s.cron.fixed && policy == ClockOnce
	s.first = s.cron.fixed && (policy == ClockOnce || policy == ClockSkip)
	s.second = policy == ClockQuartz
}

func dialectOf(name string) (string, *message.Invalid) {
	switch name {
	case "", Quartz, "quartz6", "quartz7":
		return Quartz, nil
	case Unix, "unix5":
		return Unix, nil
	case Descriptor:
		return Descriptor, nil
	}
	return "", refuseField("dialect", codeDialectUnknown, name, Quartz,
		fmt.Sprintf("%s is no dialect; write quartz, unix or descriptor.", name),
		fmt.Sprintf("%s 不是方言；请写 quartz、unix 或 descriptor。", name))
}

// parseDescriptor returns the Quartz text of a descriptor, or its interval.
func parseDescriptor(raw string) (cron string, every Duration, refusal *message.Invalid) {
	words := strings.Fields(raw)
	switch name := strings.ToLower(words[0]); {
	case name == "@every" && len(words) == 2:
		every, refusal = parseEvery("expr", words[1])
		if refusal == nil {
			refusal = refuseInterval("expr", every, words[1])
		}
		return "", every, refusal
	case name == "@every":
		return "", 0, refuseField("expr", codeIntervalInvalid, raw, "@every 90s",
			"@every needs one duration, such as @every 90s.", "@every 之后需要一个时长，例如 @every 90s。")
	case name == "@reboot":
		return "", 0, refuseField("expr", codeNotATime, words[0], "",
			"@reboot is not a time. Use a start event, or a one-shot with delay 0.",
			"@reboot 不是时间表达式，请使用启动事件或延迟为 0 的一次性任务。")
	case len(words) > 1:
	case name == "@hourly":
		return "0 0 * * * ?", 0, nil
	case name == "@daily", name == "@midnight":
		return "0 0 0 * * ?", 0, nil
	case name == "@weekly":
		return "0 0 0 ? * 1", 0, nil
	case name == "@monthly":
		return "0 0 0 1 * ?", 0, nil
	case name == "@yearly", name == "@annually":
		return "0 0 0 1 1 ?", 0, nil
	}
	suggestion := ""
	for _, known := range []string{"@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually"} {
		if distance(known, strings.ToLower(words[0])) <= 2 {
			suggestion = known
			break
		}
	}
	return "", 0, refuseField("expr", codeUnknownDescriptor, raw, suggestion,
		fmt.Sprintf("%s is not known; write @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually or @every 90s.", strings.TrimSpace(raw)),
		fmt.Sprintf("无法识别 %s；请写 @hourly、@daily、@midnight、@weekly、@monthly、@yearly、@annually 或 @every 90s。", strings.TrimSpace(raw)))
}

// Every is the interval of a fixed rate, a fixed delay or @every, and 0 for all else.
func (s *Schedule) Every() time.Duration { return s.every }

// Zone is the location whose clock a cron expression reads; due times themselves are UTC.
func (s *Schedule) Zone() *time.Location { return s.zone.loc }
