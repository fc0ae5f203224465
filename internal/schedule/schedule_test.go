package schedule

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	goparser "go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/message"
)

func moment(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return at
}

func refusalOf(t testing.TB, err error) *message.Invalid {
	t.Helper()
	var refusal *message.Invalid
	require.True(t, errors.As(err, &refusal), "not a refusal: %v", err)
	return refusal
}

// The sentences that users were promised, word for word.
func TestPromisedSentences(t *testing.T) {
	for _, c := range []struct{ expr, en, zh string }{
		{"0 0 0 30 2 ?", "This schedule never fires: February has no day 30. For the last day of February write `0 0 0 L 2 ?`.", "该表达式永远不会触发：2 月没有 30 日。若要二月最后一天，请写 `0 0 0 L 2 ?`。"},
		{"0 60 * * * ?", "minute: 60 is out of range 0-59.", "分钟：60 超出范围 0-59。"},
		{"* * *", "6 or 7 fields are needed (second minute hour day month weekday [year]); got 3.", "需要 6 或 7 个字段（秒 分 时 日 月 周 [年]），当前为 3 个。"},
		{"0 0 * * *", "5 fields look like a Unix crontab. In Quartz form: `0 0 0 * * ?`; or choose dialect Unix.", "5 个字段是 Unix crontab 写法。Quartz 写法为 `0 0 0 * * ?`，或将方言选为 Unix。"},
		{"1 0 0 * * 3", "day-of-month and weekday cannot both be set; put ? in one. Did you mean `1 0 0 ? * 3` (Tuesday) or `1 0 0 ? * 4` (Wednesday)?", "日与周不能同时指定，其中一个请写 ?。是否想写 `1 0 0 ? * 3`（周二）或 `1 0 0 ? * 4`（周三）？"},
		{"0 0 0 * * ？", "character 11 is a full-width question mark (U+FF1F); use ?.", "第 11 个字符是全角问号（U+FF1F），请改用半角 ?。"},
		{"@reboot", "@reboot is not a time. Use a start event, or a one-shot with delay 0.", "@reboot 不是时间表达式，请使用启动事件或延迟为 0 的一次性任务。"},
	} {
		_, err := Compile(Spec{Expr: c.expr})
		refusal := refusalOf(t, err)
		require.Equal(t, message.Text{EN: c.en, ZH: c.zh}, refusal.Message)
		require.Equal(t, "expr", refusal.Field)
	}

	s, err := Compile(Spec{Expr: "0 0 0 1 1 ? 2020", Zone: "UTC"})
	require.NoError(t, err)
	require.Equal(t, message.Text{
		EN: "The last possible fire was 2020-01-01 00:00:00 UTC; this schedule is over.",
		ZH: "最后一次可能的触发为 2020-01-01 00:00:00 UTC，该计划已结束。",
	}, s.Over(moment(t, "2026-01-01T00:00:00Z")).Message)
	require.Nil(t, s.Over(moment(t, "2019-12-31T23:59:59Z")))

	_, err = ParseZone("Asia/Beijing")
	require.Equal(t, message.Text{EN: "Unknown time zone Asia/Beijing. Did you mean Asia/Shanghai?", ZH: "未知时区 Asia/Beijing，是否为 Asia/Shanghai？"}, refusalOf(t, err).Message)

	for _, c := range []struct{ expr, zone, code, en, zh string }{
		{"* 0/5 * * * ?", "UTC", warnEverySecond, "Warning: fires every second during minutes 0, 5, 10 … (720 times an hour). For every 5 minutes write `0 0/5 * * * ?`.", "提示：在第 0、5、10…分钟内每秒触发（每小时 720 次）。每 5 分钟一次请写 `0 0/5 * * * ?`。"},
		{"0 0/40 * * * ?", "UTC", warnUnevenStep, "Note: restarts each hour; gaps are 40 and 20 minutes. For a true 40 minutes use an interval schedule.", "提示：每小时重新计数，间隔为 40 与 20 分钟。需要真正 40 分钟请用固定间隔。"},
		{"0 30 2 * * ?", "America/New_York", warnClockChange, "Note: on 2026-03-08 the time 02:30 does not exist; that day it runs at 03:00 (policy: run once).", "提示：2026-03-08 不存在 02:30，当日将于 03:00 执行（策略：每日一次）。"},
	} {
		s, err := Compile(Spec{Expr: c.expr, Zone: c.zone})
		require.NoError(t, err)
		require.Equal(t, []Warning{{c.code, message.Text{EN: c.en, ZH: c.zh}}}, s.Warnings(moment(t, "2026-01-01T00:00:00Z")), c.expr)
	}
}

// refused lists one spec for each code of refusal; the documentation is held to it.
var refused = []struct {
	code, field, token string
	spec               Spec
}{
	{codeKindUnknown, "kind", "hourly", Spec{Kind: "hourly"}},
	{codeForeignSetting, "every", "5s", Spec{Expr: "0 0 12 * * ?", Every: Duration(5 * time.Second)}},
	{codeDialectUnknown, "dialect", "spring", Spec{Expr: "0 0 12 * * ?", Dialect: "spring"}},
	{codeClockChange, "clockChange", "twice", Spec{Expr: "0 0 12 * * ?", ClockChange: "twice"}},
	{codeEmptyExpression, "expr", "  ", Spec{Expr: "  "}},
	{codeExpressionLong, "expr", "", Spec{Expr: strings.Repeat("0,", 300) + "0 0 12 * * ?"}},
	{codeCharacter, "expr", "\u00a0", Spec{Expr: "0 0 12 * *\u00a0?"}},
	{codeFieldCount, "expr", "0 12 * *", Spec{Expr: "0 12 * *"}},
	{codeUnixFields, "expr", "0 9 * * 1-5", Spec{Expr: "0 9 * * 1-5"}},
	{codeOutOfRange, "expr", "24", Spec{Expr: "0 0 24 * * ?"}},
	{codeUnknownName, "expr", "Foo", Spec{Expr: "0 0 0 1 Foo ?"}},
	{codeBadNumber, "expr", "1.5", Spec{Expr: "0 1.5 * * * ?"}},
	{codeEmptyItem, "expr", "5,", Spec{Expr: "0 5, * * * ?"}},
	{codeBadRange, "expr", "5--10", Spec{Expr: "0 5--10 * * * ?"}},
	{codeBadStep, "expr", "0/60", Spec{Expr: "0 0/60 * * * ?"}},
	{codeQuestionMark, "expr", "?", Spec{Expr: "0 ? 0 * * ?"}},
	{codeBothDays, "expr", "*", Spec{Expr: "0 0 0 * * *"}},
	{codeLastDay, "expr", "1L", Spec{Expr: "0 0 0 1L * ?"}},
	{codeNearestWeekday, "expr", "1-5W", Spec{Expr: "0 0 0 1-5W * ?"}},
	{codeNthWeekday, "expr", "6#0", Spec{Expr: "0 0 0 ? * 6#0"}},
	{codeNeverFires, "expr", "0 0 0 30 2 ?", Spec{Expr: "0 0 0 30 2 ?"}},
	{codeNotATime, "expr", "@reboot", Spec{Expr: "@reboot", Dialect: Descriptor}},
	{codeUnknownDescriptor, "expr", "@dayly", Spec{Expr: "@dayly"}},
	{codeAtMissing, "at", "", Spec{Kind: Once}},
	{codeOutOfRange, "at", "2200-06-05T00:00:00Z", Spec{Kind: Once, At: at(7271510400)}},
	{codeForeignSetting, "at", "1970-01-01T00:00:00Z", Spec{Expr: "0 0 12 * * ?", At: at(0)}},
	{codeForeignSetting, "end", "1970-01-01T00:00:00Z", Spec{Kind: Once, At: at(0), End: at(0)}},
	{codeForeignSetting, "every", "1m", Spec{Kind: Once, At: at(0), Every: Duration(time.Minute)}},
	{codeOver, "at", "1970-01-01T00:00:00Z", Spec{Kind: Once, At: at(0)}},
	{codeOver, "end", "1970-01-01T08:00:00+08:00", Spec{Kind: FixedDelay, Every: Duration(time.Minute), End: at(0)}},
	{codeIntervalMissing, "every", "", Spec{Kind: FixedRate}},
	{codeIntervalInvalid, "expr", "1d", Spec{Expr: "@every 1d"}},
	{codeIntervalRange, "every", "10ms", Spec{Kind: FixedDelay, Every: Duration(10 * time.Millisecond)}},
	{codeWindow, "end", "1970-01-01T00:00:00Z", Spec{Expr: "0 0 12 * * ?", Start: at(100), End: at(0)}},
	{codeOver, "expr", "0 0 0 1 1 ? 2020", Spec{Expr: "0 0 0 1 1 ? 2020"}},
	{codeJitterRange, "jitter", "24h", Spec{Expr: "0 0 12 * * ?", Jitter: Duration(24 * time.Hour)}},
	{codeJitterRange, "jitter", "-1s", Spec{Kind: Once, At: at(4e9), Jitter: -Duration(time.Second)}},
	{codeJitterRange, "jitter", "1µs", Spec{Kind: Once, At: at(4e9), Jitter: Duration(time.Microsecond)}},
	{codeForeignSetting, "jitter", "1s", Spec{Kind: Manual, Jitter: Duration(time.Second)}},
	{codeCalendarUnknown, "calendars[0]", "x", Spec{Expr: "0 0 12 * * ?", Calendars: []string{"x"}}},
	{codeForeignSetting, "calendars", "c1", with(Spec{Kind: Once, At: at(4e9)}, Calendar{})},
	{codeCalendarDate, "calendars[0].dates[1]", "2026-02-29", with(Spec{Expr: "0 0 12 * * ?"}, Calendar{Dates: []string{"02-29", "2026-02-29"}})},
	{codeCalendarDate, "calendars[0].dates[0]", "1.5.", with(Spec{Expr: "0 0 12 * * ?"}, Calendar{Dates: []string{"1.5."}})},
	{codeCalendarRange, "calendars[0].ranges[0]", "2026-05-02 - 2026-05-01", with(Spec{Expr: "0 0 12 * * ?"}, Calendar{Ranges: []DateRange{{"2026-05-02", "2026-05-01"}}})},
	{codeCalendarRange, "calendars[0].ranges[0]", "05-02 - 2026-05-01", with(Spec{Expr: "0 0 12 * * ?"}, Calendar{Ranges: []DateRange{{"05-02", "2026-05-01"}}})},
	{codeCalendarRange, "calendars[0].times[0]", "08:00 - 08:00", with(Spec{Expr: "0 0 12 * * ?"}, Calendar{Times: []TimeRange{{"08:00", "08:00"}}})},
	{codeCalendarWeekday, "calendars[0].weekdays[0]", "7", with(Spec{Expr: "0 0 12 * * ?"}, Calendar{Weekdays: []string{"7"}})},
	{codeCalendarTime, "calendars[0].times[0]", "25:00", with(Spec{Expr: "0 0 12 * * ?"}, Calendar{Times: []TimeRange{{"08:00", "25:00"}}})},
	{codeCalendarSize, "calendars[0].dates", "501", with(Spec{Expr: "0 0 12 * * ?"}, Calendar{Dates: make([]string, 501)})},
	{codeZoneUnknown, "calendars[0].zone", "Mars", with(Spec{Expr: "0 0 12 * * ?"}, Calendar{Zone: "Mars"})},
	{codeAllLeftOut, "calendars", "c1", with(Spec{Expr: "0 0 12 * * ?"}, Calendar{Times: []TimeRange{{"11:00", "13:00"}}})},
	{codeZoneUnknown, "zone", "Mars/Phobos", Spec{Expr: "0 0 12 * * ?", Zone: "Mars/Phobos"}},
	{codeZoneAmbiguous, "zone", "CST", Spec{Expr: "0 0 12 * * ?", Zone: "CST"}},
	{codeZoneSpelling, "zone", "asia/shanghai", Spec{Expr: "0 0 12 * * ?", Zone: "asia/shanghai"}},
	{codeZoneOffset, "zone", "GMT+8", Spec{Expr: "0 0 12 * * ?", Zone: "GMT+8"}},
	{codeZoneLocal, "zone", "Local", Spec{Expr: "0 0 12 * * ?", Zone: "Local"}},
}

func at(second int64) *time.Time {
	t := time.Unix(second, 0).UTC()
	return &t
}

func TestRefusals(t *testing.T) {
	now := moment(t, "2026-01-01T00:00:00Z")
	for _, c := range refused {
		t.Run(c.code, func(t *testing.T) {
			s, err := Compile(c.spec)
			var refusal *message.Invalid
			if err == nil {
				refusal = s.Over(now)
				require.NotNil(t, refusal)
			} else {
				refusal = refusalOf(t, err)
			}
			require.Equal(t, c.code, refusal.Code)
			require.Equal(t, c.field, refusal.Field)
			require.Equal(t, c.token, refusal.Token)
		})
	}
}

// warned lists one spec for each code of warning.
var warned = []struct {
	code string
	spec Spec
	part string // of the English sentence
}{
	{warnEverySecond, Spec{Expr: "* 2 * * * ?"}, "60 times an hour"},
	{warnEverySecond, Spec{Expr: "* * 2 * * ?"}, "3600 times a day"},
	{warnEveryMinute, Spec{Expr: "* 0 * * *", Dialect: Unix}, "every minute of hour 0 (60 times a day). For once at the full hour write `0 0 * * *`"},
	{warnUnevenStep, Spec{Expr: "0 0 0/5 * * ?"}, "gaps are 5 and 4 hours"},
	{warnUnevenStep, Spec{Expr: "0 0 0 */2 * ?"}, "restarts each month"},
	{warnSingleStep, Spec{Expr: "0 30/40 * * * ?"}, "only minute 30"},
	{warnRangeEnd, Spec{Expr: "0 0/30 8-9 * * ?"}, "9 is included, so 09:30 fires"},
	{warnShortMonths, Spec{Expr: "0 0 0 31 * ?"}, "without day 31 are skipped"},
	{warnWeekdayNumbers, Spec{Expr: "0 0 9 ? * 1-5"}, "`0 0 9 ? * MON-FRI`"},
	{warnStarDays, Spec{Expr: "0 0 */2 * 3", Dialect: Unix}, "as cronie does"},
	{warnJitterCapped, Spec{Expr: "0 0/15 * * * ?", Jitter: Duration(15 * time.Minute)}, "15m apart"},
	{warnJitterCapped, Spec{Expr: "0 0 9,10 * * ?", Jitter: Duration(2 * time.Hour)}, "1h apart"},
	{warnJitterCapped, Spec{Kind: FixedRate, Every: Duration(time.Second), Jitter: Duration(time.Minute)}, "1s apart"},
	{warnClockChange, Spec{Expr: "0 30 1 * * ?", Zone: "America/New_York", ClockChange: ClockBoth}, "on 2026-11-01 the time 01:30 happens twice; that day it runs on both passes"},
	{warnClockChange, Spec{Expr: "0 0 * * * ?", Zone: "America/New_York", ClockChange: ClockQuartz}, "rests during the first"},
	{warnClockChange, Spec{Expr: "0 0/5 2 * * ?", Zone: "America/New_York"}, "on 2026-03-08 the time 02:00 does not exist; that day it does not run"},
}

func TestWarnings(t *testing.T) {
	from := moment(t, "2026-01-01T00:00:00Z")
	for _, c := range warned {
		s, err := Compile(c.spec)
		require.NoError(t, err)
		found := false
		for _, w := range s.Warnings(from) {
			found = found || w.Code == c.code && strings.Contains(w.Message.EN, c.part)
			require.NotEmpty(t, w.Message.ZH)
		}
		require.True(t, found, "%s: %+v", c.spec.Expr, s.Warnings(from))
	}
	for _, expr := range []string{"0 0 12 * * ?", "0 0/5 * * * ?", "0 0 9 ? * MON-FRI", "* * * * * ?", "0 0 9 L * ?", "0 0 */6 * * ?", "@monthly"} {
		s, err := Compile(Spec{Expr: expr})
		require.NoError(t, err)
		require.Empty(t, s.Warnings(from), expr)
	}
	// Hourly in New York loses and doubles nothing.
	s, err := Compile(Spec{Expr: "0 0 * * * ?", Zone: "America/New_York"})
	require.NoError(t, err)
	require.Empty(t, s.Warnings(from))
}

// The manual lists each code that the source has, and no other.
func TestManualListsTheCodes(t *testing.T) {
	file, err := goparser.ParseFile(token.NewFileSet(), "codes.go", nil, 0)
	require.NoError(t, err)
	inSource, hasExample := map[string]bool{}, map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			inSource[value] = true
		}
		return true
	})
	manual, err := os.ReadFile("../../docs/schedule.md")
	require.NoError(t, err)
	_, codes, ok := strings.Cut(string(manual), "## Warnings")
	require.True(t, ok)
	inManual := map[string]bool{}
	for _, found := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(codes, -1) {
		inManual[found[1]] = true
	}
	require.Equal(t, inSource, inManual)
	for _, c := range refused {
		hasExample[c.code] = true
	}
	for _, c := range warned {
		hasExample[c.code] = true
	}
	hasExample[warnOver] = true // see TestPreviewOver
	require.Equal(t, inSource, hasExample)
}

// C242: names of zones.
func TestC242Zones(t *testing.T) {
	for name, want := range map[string]string{
		"": "Asia/Shanghai", "Asia/Shanghai": "Asia/Shanghai", "UTC": "UTC", "GMT": "GMT",
		"Etc/GMT+8": "Etc/GMT+8", "PRC": "PRC", "America/Argentina/Buenos_Aires": "America/Argentina/Buenos_Aires",
	} {
		loc, err := ParseZone(name)
		require.NoError(t, err, name)
		require.Equal(t, want, loc.String())
	}
	for name, want := range map[string][2]string{
		"asia/shanghai": {codeZoneSpelling, "Asia/Shanghai"}, "Asia/Shanghai ": {codeZoneSpelling, "Asia/Shanghai"},
		"utc": {codeZoneSpelling, "UTC"}, "Z": {codeZoneSpelling, "UTC"},
		"GMT+8": {codeZoneOffset, "Asia/Shanghai"}, "UTC+08:00": {codeZoneOffset, "Asia/Shanghai"},
		"+0800": {codeZoneOffset, "Asia/Shanghai"}, "UTC-5": {codeZoneOffset, "Etc/GMT+5"}, "+05:30": {codeZoneOffset, "Asia/Kolkata"},
		"UTC+0": {codeZoneOffset, "UTC"}, "GMT-03:00": {codeZoneOffset, "Etc/GMT+3"},
		"CST": {codeZoneAmbiguous, "Asia/Shanghai"}, "EST": {codeZoneAmbiguous, "America/New_York"}, "PST": {codeZoneAmbiguous, "America/Los_Angeles"},
		"Local": {codeZoneLocal, ""}, "localtime": {codeZoneLocal, ""}, " ": {codeZoneLocal, ""},
		"Asia/Beijing": {codeZoneUnknown, "Asia/Shanghai"}, "Asia/Shangai": {codeZoneUnknown, "Asia/Shanghai"},
		"Shanghai": {codeZoneUnknown, "Asia/Shanghai"}, "China Standard Time": {codeZoneUnknown, "Asia/Shanghai"},
		"Europe/New_York": {codeZoneUnknown, "America/New_York"}, "America/New York": {codeZoneUnknown, "America/New_York"},
		"posix/Asia/Shanghai": {codeZoneUnknown, "Asia/Shanghai"}, "../../etc/passwd": {codeZoneUnknown, ""},
		"+05:17": {codeZoneUnknown, ""}, "Mars/Phobos": {codeZoneUnknown, ""}, "/etc/localtime": {codeZoneUnknown, ""},
	} {
		_, err := ParseZone(name)
		refusal := refusalOf(t, err)
		require.Equal(t, want, [2]string{refusal.Code, refusal.Suggestion}, name)
		require.Equal(t, name, refusal.Token)
		if refusal.Suggestion != "" {
			_, err = ParseZone(refusal.Suggestion)
			require.NoError(t, err)
		}
	}
	// By the rule of the database the sign of Etc/GMT+8 is reversed.
	s, err := Compile(Spec{Expr: "0 0 9 * * ?", Zone: "Etc/GMT+8"})
	require.NoError(t, err)
	due, _ := s.Next(moment(t, "2026-01-01T00:00:00Z"))
	require.Equal(t, "2026-01-01T17:00:00Z", due.Format(time.RFC3339))
}

// Each name of the list is a zone, so that a suggestion never leads astray.
func TestZoneNames(t *testing.T) {
	for name := range strings.FieldsSeq(zoneNames) {
		if _, err := time.LoadLocation(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range zoneAliases {
		_, err := ParseZone(name)
		require.NoError(t, err)
	}
}

// C236: the weekday in the words is the weekday of the fire, in both languages and
// both dialects.
func TestC236Words(t *testing.T) {
	for _, c := range []struct{ expr, dialect, en, zh string }{
		{"0 0 0 ? * 4L *", "", "At 00:00 on the last Wednesday of the month", "每月最后一个周三 00:00"},
		{"0 0 0 ? * L *", "", "At 00:00 every Saturday", "每周六 00:00"},
		{"1 0 0 ? * 1#1 *", "", "At 00:00:01 on the first Sunday of the month", "每月第一个周日 00:00:01"},
		{"0 15 10 ? * 6L", "", "At 10:15 on the last Friday of the month", "每月最后一个周五 10:15"},
		{"0 0 0 ? * 2-6/2", "", "At 00:00 on Monday, Wednesday and Friday", "每周一、周三、周五 00:00"},
		{"0 0 9 ? * MON-FRI", "", "At 09:00 Monday to Friday", "每周一至周五 09:00"},
		{"0 9 * * 3", Unix, "At 09:00 every Wednesday", "每周三 09:00"},
		{"30 4 1,15 * 5", Unix, "At 04:30 on the 1st and 15th of the month or every Friday", "每月 1、15 日或每周五 04:30"},
		{"0 0 */2 * 3", Unix, "At 00:00 on each 2nd day from the 1st of the month if that is Wednesday", "每月 1 日起每 2 天且为周三 00:00"},
		{"0 0/5 14,18 * * ?", "", "Every 5 minutes in hours 14 and 18", "14、18 点每 5 分钟"},
		{"* 2 * * * ?", "", "Every second at minute 2 of every hour", "每小时第 2 分钟每秒"},
		{"0 0 * * * ?", "", "Every hour", "每小时整点"},
		{"0 0 12 1 1 ? 2030-2032", "", "At 12:00 on the 1st in January 2030-2032", "2030-2032 年 1 月 1 日 12:00"},
		{"0 0 9 LW * ?", "", "At 09:00 on the last working day (Monday to Friday) of the month", "每月最后一个工作日（周一至周五） 09:00"},
		{"@every 90s", "", "Every 1 minute and 30 seconds", "每 1 分钟 30 秒"},
		{"@weekly", "", "At 00:00 every Sunday", "每周日 00:00"},
	} {
		s, err := Compile(Spec{Expr: c.expr, Dialect: c.dialect})
		require.NoError(t, err)
		require.Equal(t, message.Text{EN: c.en, ZH: c.zh}, s.Text())
	}
	for _, c := range readCases(t) {
		if c.expect == "ERROR" {
			continue
		}
		s, err := Compile(c.spec(""))
		require.NoError(t, err)
		text := s.Text()
		require.NotContains(t, text.EN, "  ", c.expr)
		require.NotContains(t, text.ZH, "  ", c.expr)
		texts := strings.Fields(c.expr)
		day := texts[min(len(texts)-1, 5)]
		isUnix := c.dialect == "unix5"
		onlyWeekday := isUnix && texts[2] == "*" && day != "*" || !isUnix && day != "?" && day != "*" && len(texts) > 5
		if !onlyWeekday || strings.Contains(text.EN, " to ") {
			continue
		}
		due, _ := s.Next(c.from)
		local := due.In(s.Zone()).Weekday()
		require.Contains(t, text.EN, local.String(), c.expr)
		require.Contains(t, text.ZH, weekdayZH[local], c.expr)
	}
}

// C232, C233: steps in the day of month.
func TestStepsInDays(t *testing.T) {
	s, err := Compile(Spec{Expr: "0 0 */2 * 3", Dialect: Unix})
	require.NoError(t, err)
	var got []string
	for _, due := range nextTimes(s, moment(t, "2024-08-16T00:00:00+08:00"), 3) {
		got = append(got, due.In(s.Zone()).Format("2006-01-02"))
	}
	require.Equal(t, []string{"2024-08-21", "2024-09-11", "2024-09-25"}, got)

	s, err = Compile(Spec{Expr: "0 0 0 */15 * ?", Zone: "UTC"})
	require.NoError(t, err)
	got = nil
	for _, due := range nextTimes(s, moment(t, "2026-01-01T00:00:00Z"), 3) {
		got = append(got, due.Format("2006-01-02"))
	}
	require.Equal(t, []string{"2026-01-16", "2026-01-31", "2026-02-01"}, got)
}

func TestFiveFieldsInQuartzForm(t *testing.T) {
	for unix, quartz := range map[string]string{
		"0 0 * * *": "0 0 0 * * ?", "0 9 * * 1-5": "0 0 9 ? * 2-6", "0 0 * * 5-7": "0 0 0 ? * 6-1",
		"0 0 * * 7": "0 0 0 ? * 1", "0 0 * * MON-FRI": "0 0 0 ? * MON-FRI", "*/5 * * * *": "0 */5 * * * ?",
		"0 0 1 * *": "0 0 0 1 * ?", "0 0 * * 5-7/2": "0 0 0 ? * 6-1/2", "0 0 * * ?": "0 0 0 * * ?",
		"0 0 1,15 * 5": "0 0 0 1,15 * ?",
	} {
		_, err := Compile(Spec{Expr: unix})
		refusal := refusalOf(t, err)
		require.Equal(t, codeUnixFields, refusal.Code, unix)
		require.Equal(t, quartz, refusal.Suggestion)
		fromUnix, err := Compile(Spec{Expr: unix, Dialect: Unix})
		if err != nil || unix == "0 0 1,15 * 5" {
			continue
		}
		fromQuartz, err := Compile(Spec{Expr: quartz})
		require.NoError(t, err)
		from := moment(t, "2026-01-01T00:00:00Z")
		require.Equal(t, nextTimes(fromUnix, from, 10), nextTimes(fromQuartz, from, 10), unix)
	}
}

func TestSpecJSON(t *testing.T) {
	const text = `{"no":1,"kind":"cron","expr":"0 0 12 * * ?","dialect":"quartz","zone":"Asia/Shanghai","clockChange":"once"}`
	var spec Spec
	require.NoError(t, json.Unmarshal([]byte(text), &spec))
	again, err := json.Marshal(spec)
	require.NoError(t, err)
	require.JSONEq(t, text, string(again))

	spec = Spec{}
	require.NoError(t, json.Unmarshal([]byte(`{"kind":"fixedRate","every":"1h30m","anchor":"2026-01-01T00:00:00Z"}`), &spec))
	require.Equal(t, Duration(90*time.Minute), spec.Every)
	again, err = json.Marshal(spec)
	require.NoError(t, err)
	require.JSONEq(t, `{"kind":"fixedRate","every":"1h30m","anchor":"2026-01-01T00:00:00Z"}`, string(again))

	for in, out := range map[string]string{`"90s"`: `"1m30s"`, `"60m"`: `"1h"`, `"10m"`: `"10m"`, `"1h0m5s"`: `"1h0m5s"`, `"250ms"`: `"250ms"`} {
		var d Duration
		require.NoError(t, json.Unmarshal([]byte(in), &d))
		again, err := json.Marshal(d)
		require.NoError(t, err)
		require.Equal(t, out, string(again))
	}
	for in, suggestion := range map[string]string{`5`: "", `"5"`: "5s", `"1d"`: "24h", `"soon"`: "", `true`: ""} {
		err := json.Unmarshal([]byte(`{"every":`+in+`}`), &spec)
		refusal := refusalOf(t, err)
		require.Equal(t, "every", refusal.Field)
		require.Equal(t, suggestion, refusal.Suggestion, in)
	}
}

func TestFixedRateAndDelay(t *testing.T) {
	anchor := moment(t, "2026-01-01T00:00:02Z")
	s, err := Compile(Spec{Kind: FixedRate, Every: Duration(5 * time.Second), Anchor: &anchor})
	require.NoError(t, err)
	due, ok := s.Next(moment(t, "2026-03-01T12:00:02Z"))
	require.True(t, ok)
	require.Equal(t, "2026-03-01T12:00:07Z", due.Format(time.RFC3339))
	due, ok = s.Next(moment(t, "2025-12-31T23:59:53Z")) // the grid lies on both sides of its anchor
	require.True(t, ok)
	require.Equal(t, "2025-12-31T23:59:57Z", due.Format(time.RFC3339))
	require.Equal(t, 5*time.Second, s.Every())

	s, err = Compile(Spec{Kind: FixedRate, Every: Duration(40 * time.Minute)})
	require.NoError(t, err)
	due, _ = s.Next(time.Unix(0, 0))
	require.Equal(t, int64(2400), due.Unix())

	s, err = Compile(Spec{Kind: FixedDelay, Every: Duration(time.Minute)})
	require.NoError(t, err)
	require.Equal(t, time.Minute, s.Every())
	for _, kind := range []Kind{Event, Delayed, Dependency, Manual, API} {
		other, err := Compile(Spec{Kind: kind})
		require.NoError(t, err)
		for _, silent := range []*Schedule{s, other} {
			_, ok = silent.Next(anchor)
			require.False(t, ok)
			require.Nil(t, silent.Over(anchor))
			require.Nil(t, silent.Warnings(anchor))
			require.NotEmpty(t, silent.Text().ZH)
		}
	}
}

func TestStartAndEnd(t *testing.T) {
	start, end := moment(t, "2026-02-01T12:00:00Z"), moment(t, "2026-02-03T12:00:00Z")
	for _, spec := range []Spec{
		{Expr: "0 0 12 * * ?", Zone: "UTC", Start: &start, End: &end},
		{Kind: FixedRate, Every: Duration(24 * time.Hour), Anchor: &start, Start: &start, End: &end},
	} {
		s, err := Compile(spec)
		require.NoError(t, err)
		times := nextTimes(s, moment(t, "2026-01-01T00:00:00Z"), 9)
		require.Len(t, times, 3)
		require.Equal(t, start, times[0])
		require.Equal(t, end, times[2])
		over := s.Over(end)
		require.Equal(t, "end", over.Field)
		require.Contains(t, over.Message.EN, "2026-02-03 ")
	}
}

func TestOnceIsDueOnceAndNeverEarly(t *testing.T) {
	due := moment(t, "2026-10-25T02:30:00+02:00") // happens twice in Berlin; the offset says which
	for _, offset := range []time.Duration{0, time.Nanosecond, time.Millisecond - 1, time.Millisecond} {
		asked := due.Add(offset)
		s, err := Compile(Spec{Kind: Once, At: &asked, Zone: "Europe/Berlin"})
		require.NoError(t, err)
		times := nextTimes(s, moment(t, "2026-01-01T00:00:00Z"), 9)
		require.Len(t, times, 1)
		require.False(t, times[0].Before(asked), offset)
		require.Less(t, times[0].Sub(asked), time.Millisecond)
		require.Nil(t, s.Over(times[0].Add(-1)))
		over := s.Over(times[0])
		require.Equal(t, "at", over.Field)
		require.Contains(t, over.Message.EN, "2026-10-25 02:30:00")
		require.Contains(t, s.Text().EN, "Once at 2026-10-25 02:30:00")
	}
}

func TestFixedDelayKeepsToStartAndEnd(t *testing.T) {
	start, end := moment(t, "2026-02-01T12:00:00Z").Add(1), moment(t, "2026-02-01T13:00:00Z")
	s, err := Compile(Spec{Kind: FixedDelay, Every: Duration(time.Minute), Start: &start, End: &end})
	require.NoError(t, err)
	for _, c := range []struct {
		ended, due string
		ok         bool
	}{
		{"2026-02-01T11:00:00Z", "2026-02-01T12:00:00.001Z", true}, // never before its start
		{"2026-02-01T12:00:30Z", "2026-02-01T12:01:30Z", true},
		{"2026-02-01T12:59:00Z", "2026-02-01T13:00:00Z", true}, // the end is included
		{"2026-02-01T12:59:00.001Z", "", false},
	} {
		due, ok := s.AfterRun(moment(t, c.ended))
		require.Equal(t, c.ok, ok, c.ended)
		if ok {
			require.Equal(t, c.due, due.Format(time.RFC3339Nano))
		}
		require.Equal(t, !c.ok, s.Over(moment(t, c.ended)) != nil, c.ended)
	}
	rate, err := Compile(Spec{Kind: FixedRate, Every: Duration(time.Minute)})
	require.NoError(t, err)
	_, ok := rate.AfterRun(start)
	require.False(t, ok, "only a fixed delay is due after a run")
}

func TestFixedRateBeginsAtItsStart(t *testing.T) {
	start := moment(t, "2026-02-01T12:00:07Z")
	for _, spec := range []Spec{
		{Kind: FixedRate, Every: Duration(time.Hour), Start: &start},
		{Expr: "@every 1h", Start: &start},
	} {
		s, err := Compile(spec)
		require.NoError(t, err)
		require.Equal(t, []time.Time{start, start.Add(time.Hour)}, nextTimes(s, moment(t, "2026-01-01T00:00:00Z"), 2))
		fires, _, err := Preview(0, []Spec{spec}, moment(t, "2026-02-01T12:30:00Z"), 1)
		require.NoError(t, err)
		require.Equal(t, start.Add(time.Hour), fires[0].At.UTC(), "a preview knows the same grid")
	}
}

func TestIntervalsInWords(t *testing.T) {
	for span, want := range map[time.Duration][2]string{
		20 * time.Second: {"Every 20 seconds", "每 20 秒"}, time.Hour: {"Every hour", "每 1 小时"},
		48 * time.Hour: {"Every 2 days", "每 2 天"}, 1500 * time.Millisecond: {"Every 1 second and 500 milliseconds", "每 1 秒 500 毫秒"},
	} {
		s, err := Compile(Spec{Kind: FixedRate, Every: Duration(span)})
		require.NoError(t, err)
		require.Equal(t, want, [2]string{s.Text().EN, s.Text().ZH})
	}
}

// What is far from now neither panics nor loops.
func TestFarMoments(t *testing.T) {
	for _, spec := range []Spec{{Expr: "0 0 12 * * ?"}, {Expr: "0 30 2 * * ?", Zone: "America/New_York"}, {Kind: FixedRate, Every: Duration(time.Hour)}} {
		s, err := Compile(spec)
		require.NoError(t, err)
		due, ok := s.Next(time.Time{})
		require.True(t, ok)
		require.Equal(t, 1970, due.AddDate(0, 0, 3).Year())
		for _, after := range []time.Time{time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(1<<60, 0)} {
			_, ok = s.Next(after)
			require.False(t, ok)
			require.Empty(t, s.Warnings(after))
		}
		due, ok = s.Next(time.Date(2150, 6, 1, 0, 0, 0, 0, time.UTC))
		require.True(t, ok)
		require.Equal(t, 2150, due.Year())
	}
}

func TestPreviewMerges(t *testing.T) {
	from := moment(t, "2026-03-07T12:00:00-05:00")
	fires, warnings, err := Preview(0, []Spec{
		{Expr: "0 30 2 * * ?", Zone: "America/New_York"},
		{No: 7, Expr: "0 0 8 * * ?", Zone: "Asia/Shanghai"},
		{Kind: Manual},
	}, from, 4)
	require.NoError(t, err)
	var lines []string
	for _, f := range fires {
		line := fmt.Sprintf("%s %d", f.At.Format(time.RFC3339), f.Trigger)
		if f.Note != nil {
			line += " " + f.Note.EN
		}
		lines = append(lines, line)
	}
	require.Equal(t, []string{
		"2026-03-08T08:00:00+08:00 7",
		"2026-03-08T03:00:00-04:00 1 02:30 does not exist on this day; runs at 03:00 (policy: run once)",
		"2026-03-09T08:00:00+08:00 7",
		"2026-03-09T02:30:00-04:00 1",
	}, lines)
	require.NotEmpty(t, warnings)
	require.Equal(t, 1, warnings[0].Trigger)
	require.Equal(t, warnClockChange, warnings[0].Code)
}

func TestPreviewNotesTheSecondPass(t *testing.T) {
	from := moment(t, "2026-11-01T00:59:00-04:00")
	notes := func(policy, expr string) (list []string) {
		fires, _, err := Preview(0, []Spec{{Expr: expr, Zone: "America/New_York", ClockChange: policy}}, from, 2)
		require.NoError(t, err)
		for _, f := range fires {
			text := f.At.Format("15:04-07")
			if f.Note != nil {
				text += " " + f.Note.EN
			}
			list = append(list, text)
		}
		return list
	}
	require.Equal(t, []string{"01:00-04", "01:00-05 01:00 for the second time on this day: the clock went back"}, notes(ClockOnce, "0 0 * * * ?"))
	require.Equal(t, []string{"01:30-04 01:30 happens twice on this day; runs on the first pass (policy: run once)", "01:30-05"}, notes(ClockOnce, "0 30 1 * * ?"))
	require.Equal(t, "01:30-05 01:30 happens twice on this day; runs on both passes (policy: run on both passes)", notes(ClockBoth, "0 30 1 * * ?")[1])
	require.Equal(t, "01:30-05 01:30 happens twice on this day; runs on the second pass (policy: as Quartz)", notes(ClockQuartz, "0 30 1 * * ?")[0])
}

func TestPreviewOver(t *testing.T) {
	from := moment(t, "2026-01-01T00:00:00Z")
	past := Spec{Expr: "0 0 0 1 1 ? 2020", Zone: "UTC"}
	_, _, err := Preview(0, []Spec{{Kind: Manual}, past}, from, 3)
	require.Equal(t, "triggers[1].expr", refusalOf(t, err).Field)
	require.Equal(t, codeOver, refusalOf(t, err).Code)

	fires, warnings, err := Preview(0, []Spec{past, {Expr: "0 0 12 * * ?"}}, from, 3)
	require.NoError(t, err)
	require.Len(t, fires, 3)
	require.Equal(t, warnOver, warnings[0].Code)

	_, _, err = Preview(0, []Spec{{Expr: "0 0 12 * * ?"}, {Expr: "0 0 24 * * ?"}}, from, 3)
	require.Equal(t, "triggers[1].expr", refusalOf(t, err).Field)

	fires, _, err = Preview(0, []Spec{{Kind: Manual}}, from, 3)
	require.NoError(t, err)
	require.Empty(t, fires)
}

func TestNeverBecauseOfAClockChange(t *testing.T) {
	spec := Spec{Expr: "0 30 2 10 3 ? 2019", Zone: "America/New_York", ClockChange: ClockSkip}
	_, err := Compile(spec)
	require.Equal(t, codeNeverFires, refusalOf(t, err).Code)
	spec.ClockChange = ClockOnce
	_, err = Compile(spec)
	require.NoError(t, err)
}

func FuzzCompile(f *testing.F) {
	for _, c := range readCases(f) {
		f.Add(c.expr, c.dialect, c.zone, c.from.Unix())
	}
	f.Add("0\u00a00 ＊ L-3W,15W JAN-DEC ?", "quartz", "GMT+8", int64(0))
	f.Add("@every 1d", "descriptor", "Local", int64(1<<40))
	f.Fuzz(func(t *testing.T, expr, dialect, zone string, second int64) {
		s, err := Compile(Spec{Expr: expr, Dialect: dialect, Zone: zone})
		if err != nil {
			refusal := refusalOf(t, err)
			if refusal.Code == "" || refusal.Field == "" || refusal.Message.EN == "" || refusal.Message.ZH == "" {
				t.Fatalf("%q: half a refusal: %+v", expr, refusal)
			}
			return
		}
		after := time.Unix(second, 0)
		if due, ok := s.Next(after); ok {
			if !due.After(after) {
				t.Fatalf("%q: %s is not after %s", expr, due, after)
			}
			if again, _ := s.Next(due.Add(-1)); !again.Equal(due) {
				t.Fatalf("%q: %s, but a moment before it %s", expr, due, again)
			}
		} else if s.Over(after) == nil {
			t.Fatalf("%q: neither due nor over", expr)
		}
		if text := s.Text(); text.EN == "" || text.ZH == "" {
			t.Fatalf("%q: no words", expr)
		}
		s.Warnings(after)
		sameWhenReadAgain(t, s, after)
		boundsOnlyCut(t, s, after)
	})
}

// sameWhenReadAgain: a schedule that was written out, whole or field by field, is the same.
func sameWhenReadAgain(t *testing.T, s *Schedule, after time.Time) {
	data, err := json.Marshal(s.spec)
	require.NoError(t, err)
	var read Spec
	require.NoError(t, json.Unmarshal(data, &read))
	specs := []Spec{read}
	if s.isCron && s.spec.Dialect != Descriptor {
		read.Expr = s.parsed().join(s.parsed().texts)
		specs = append(specs, read)
	}
	for _, spec := range specs {
		again, err := Compile(spec)
		require.NoError(t, err, "%q of %q", spec.Expr, s.spec.Expr)
		require.Equal(t, s.Text(), again.Text())
		require.Equal(t, nextTimes(s, after, 3), nextTimes(again, after, 3), "%q of %q", spec.Expr, s.spec.Expr)
	}
}

// boundsOnlyCut: start and end move no fire; they only take away those outside.
func boundsOnlyCut(t *testing.T, s *Schedule, after time.Time) {
	spec := s.spec
	start, end := after.Add(36*time.Hour), after.Add(400*24*time.Hour)
	spec.Start, spec.End = &start, &end
	if s.gridMs > 0 && spec.Anchor == nil {
		origin := time.Unix(0, 0)
		spec.Anchor = &origin // else the grid would begin at start
	}
	bounded, err := Compile(spec)
	require.NoError(t, err)
	got, ok := bounded.Next(after)
	want, wanted := s.Next(start.Add(-1))
	wanted = wanted && !want.After(end)
	require.Equal(t, wanted, ok, "%q from %s", spec.Expr, after)
	if ok {
		require.Equal(t, want, got, "%q from %s", spec.Expr, after)
	}
}
