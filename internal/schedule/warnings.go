package schedule

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/ax-scheduler/ax/internal/message"
)

// Warning tells of something legal that often surprises. It never stops anybody. Code
// is stable and in snake case.
type Warning struct {
	Code    string       `json:"code"`
	Message message.Text `json:"message"`
}

// Clock changes further away than this are no news for somebody who saves a job.
const warnAhead = 400 * 24 * time.Hour

// Warnings lists what may surprise in a schedule that is looked at at from; clock
// changes count up to 400 days later. It is nil for most schedules.
func (s *Schedule) Warnings(from time.Time) []Warning {
	var list []Warning
	warn := func(code, en, zh string) {
		list = append(list, Warning{Code: code, Message: message.Text{EN: en, ZH: zh}})
	}
	s.warnJitter(from, warn)
	if !s.isCron {
		return list
	}
	e := s.parsed()
	if s.spec.Dialect != Descriptor {
		e.warnFrequency(warn)
		e.warnSteps(warn)
		e.warnHours(warn)
		e.warnDays(warn)
	}
	s.warnClockChange(from, warn)
	return list
}

type warnFunc func(code, en, zh string)

// warnFrequency finds a star where a 0 was meant: "every 5 minutes" that fires sixty
// times as often.
func (e *expression) warnFrequency(warn warnFunc) {
	minutes, hours := e.set(minute), e.set(hour)
	perHour := bits.OnesCount64(minutes)
	everySecond := e.set(second) == 1<<60-1
	texts := e.texts
	switch {
	case everySecond && perHour < 60:
		texts[second] = "0"
		better := e.join(texts)
		meantEN, meantZH := "For once a minute then", "只在这些分钟触发一次"
		if e.stepped(minute) {
			step := e.items[minute][0].step
			meantEN, meantZH = fmt.Sprintf("For every %d minutes", step), fmt.Sprintf("每 %d 分钟一次", step)
		}
		listEN, listZH := minuteList(minutes)
		orEN, orZH := "", ""
		if n := e.items[minute][0]; len(e.items[minute]) == 1 && n.form == formValue {
			meantEN, meantZH = "For once at that minute", "该分钟只触发一次"
			if n.from > 1 && e.texts[hour] == "*" {
				texts[minute] = fmt.Sprintf("0/%d", n.from)
				orEN = fmt.Sprintf(", for every %d minutes `%s`", n.from, e.join(texts))
				orZH = fmt.Sprintf("，每 %d 分钟一次请写 `%s`", n.from, e.join(texts))
			}
		}
		warn(warnEverySecond,
			fmt.Sprintf("Warning: fires every second during %s (%d times an hour). %s write `%s`%s.", listEN, perHour*60, meantEN, better, orEN),
			fmt.Sprintf("提示：在第 %s分钟内每秒触发（每小时 %d 次）。%s请写 `%s`%s。", listZH, perHour*60, meantZH, better, orZH))
	case everySecond && bits.OnesCount64(hours) < 24 && e.onlyValues(hour):
		texts[second], texts[minute] = "0", "0"
		list := ranges(hours)
		warn(warnEverySecond,
			fmt.Sprintf("Warning: fires every second of hour %s (%d times a day). For once at the full hour write `%s`.", joinEN(list), bits.OnesCount64(hours)*3600, e.join(texts)),
			fmt.Sprintf("提示：在 %s 点内每秒触发（每天 %d 次）。整点一次请写 `%s`。", strings.Join(list, "、"), bits.OnesCount64(hours)*3600, e.join(texts)))
	case perHour == 60 && !everySecond && bits.OnesCount64(hours) < 24 && e.onlyValues(hour):
		texts[minute] = "0"
		list := ranges(hours)
		n := bits.OnesCount64(hours) * 60 * bits.OnesCount64(e.set(second))
		warn(warnEveryMinute,
			fmt.Sprintf("Warning: fires every minute of hour %s (%d times a day). For once at the full hour write `%s`.", joinEN(list), n, e.join(texts)),
			fmt.Sprintf("提示：在 %s 点内每分钟触发（每天 %d 次）。整点一次请写 `%s`。", strings.Join(list, "、"), n, e.join(texts)))
	}
}

// minuteList is "minutes 0, 5, 10 …", short.
func minuteList(set uint64) (en, zh string) {
	list := values(set)
	texts := make([]string, 0, 3)
	for _, v := range list[:min(3, len(list))] {
		texts = append(texts, strconv.Itoa(v))
	}
	en = strings.Join(texts, ", ")
	zh = strings.Join(texts, "、")
	switch {
	case len(list) > 3:
		return "minutes " + en + " …", zh + "…"
	case len(list) > 1:
		return "minutes " + en, zh + " "
	}
	return "minute " + en, zh + " "
}

func (e *expression) onlyValues(k int) bool {
	for _, it := range e.items[k] {
		if it.form != formValue {
			return false
		}
	}
	return true
}

// warnSteps finds steps that restart before they come round evenly.
func (e *expression) warnSteps(warn warnFunc) {
	units := [...]struct{ unitEN, unitsEN, restartEN, unitZH, restartZH string }{
		second:     {"second", "seconds", "each minute", "秒", "每分钟"},
		minute:     {"minute", "minutes", "each hour", "分钟", "每小时"},
		hour:       {"hour", "hours", "each day", "小时", "每天"},
		dayOfMonth: {"day", "days", "each month", "天", "每月"},
	}
	for k := second; k <= dayOfMonth; k++ {
		if !e.stepped(k) {
			continue
		}
		it, unit := e.items[k][0], units[k]
		list := values(e.set(k))
		if len(list) == 1 {
			warn(warnSingleStep,
				fmt.Sprintf("Note: the step in %s has no effect; it is only %s %d.", e.texts[k], unit.unitEN, list[0]),
				fmt.Sprintf("提示：%s 的步长没有作用，只有第 %d %s。", e.texts[k], list[0], unit.unitZH))
			continue
		}
		// Who starts beyond the first step means "from then on", not "all round".
		if it.from >= it.step+e.rules[k].min {
			continue
		}
		if k == dayOfMonth {
			warn(warnUnevenStep,
				fmt.Sprintf("Note: restarts each month, from day %d; the gap at the end of a month differs. For a true %d days use an interval schedule.", it.from, it.step),
				fmt.Sprintf("提示：每月从 %d 日重新计数，月末间隔不同。需要真正 %d 天请用固定间隔。", it.from, it.step))
			continue
		}
		size := e.rules[k].max + 1
		gap := list[0] + size - list[len(list)-1]
		// With a restricted larger field there is no round to speak of.
		if gap == it.step || e.texts[k+1] != "*" {
			continue
		}
		warn(warnUnevenStep,
			fmt.Sprintf("Note: restarts %s; gaps are %d and %d %s. For a true %d %s use an interval schedule.", unit.restartEN, it.step, gap, unit.unitsEN, it.step, unit.unitsEN),
			fmt.Sprintf("提示：%s重新计数，间隔为 %d 与 %d %s。需要真正 %d %s请用固定间隔。", unit.restartZH, it.step, gap, unit.unitZH, it.step, unit.unitZH))
	}
}

// warnHours tells that 8-9 goes on until 9:59.
func (e *expression) warnHours(warn warnFunc) {
	if len(e.items[hour]) != 1 || e.items[hour][0].form != formRange {
		return
	}
	minutes := values(e.set(minute))
	if len(minutes) < 2 {
		return
	}
	it, last := e.items[hour][0], minutes[len(minutes)-1]
	warn(warnRangeEnd,
		fmt.Sprintf("Note: %d is included, so %02d:%02d fires.", it.to, it.to, last),
		fmt.Sprintf("提示：范围包含 %d 点，因此 %02d:%02d 也会触发。", it.to, it.to, last))
}

// warnDays is about the day fields.
func (e *expression) warnDays(warn warnFunc) {
	dom, dow := e.texts[dayOfMonth], e.texts[weekday]
	if e.unix && dom != "*" && dow != "*" && (dom[0] == '*' || dow[0] == '*') {
		warn(warnStarDays,
			fmt.Sprintf("Note: a day field starts with *, so a day must match day-of-month %s and weekday %s (as cronie does); other schedulers fire when either matches.", dom, dow),
			fmt.Sprintf("提示：日、周之一以 * 开头，因此必须同时满足日 %s 与周 %s（与 cronie 一致）；其他调度器满足其一即触发。", dom, dow))
	}
	if e.onlyValues(dayOfMonth) && (dow == "*" || dow == "?") {
		days := values(e.set(dayOfMonth))
		var missing []int
		for _, m := range values(e.set(month)) {
			length := monthLength(2001, m)
			if days[len(days)-1] > length {
				missing = append(missing, m)
			}
		}
		if last := days[len(days)-1]; len(missing) > 0 && len(days) == 1 && (last != 29 || e.texts[month] == "*") {
			warn(warnShortMonths,
				fmt.Sprintf("Note: months without day %d are skipped. For the last day of each month use L in dialect Quartz.", last),
				fmt.Sprintf("提示：没有 %d 日的月份会被跳过。每月最后一天请在 Quartz 方言中写 L。", last))
		}
	}
	if !e.unix && len(e.items[weekday]) == 1 && e.items[weekday][0].form == formRange && dow == "1-5" {
		texts := e.texts
		texts[weekday] = "MON-FRI"
		warn(warnWeekdayNumbers,
			fmt.Sprintf("Note: in Quartz 1 is Sunday, so 1-5 is Sunday to Thursday. For Monday to Friday write `%s`.", e.join(texts)),
			fmt.Sprintf("提示：Quartz 中 1 是周日，1-5 即周日至周四。周一至周五请写 `%s`。", e.join(texts)))
	}
}

// warnClockChange tells of the next gap and the next overlap that touch the schedule.
func (s *Schedule) warnClockChange(from time.Time, warn warnFunc) {
	z := s.zone
	if from.Unix() < beforeAll || from.Unix() >= afterAll {
		return
	}
	until := from.Add(warnAhead).Unix()
	gap, overlap := false, false
	for i := z.index(from.Unix()) + 1; i < len(z.offsets) && z.startsAt[i] <= until; i++ {
		note, ok := s.noteAt(i)
		isGap := z.offsets[i] > z.offsets[i-1]
		if !ok || isGap && gap || !isGap && overlap || !s.inWindow(z.startsAt[i]) {
			continue
		}
		if isGap {
			gap = true
		} else {
			overlap = true
		}
		warn(warnClockChange,
			fmt.Sprintf("Note: on %s the time %s; that day it %s (policy: %s).", note.date, note.what.EN, note.then.EN, note.policy.EN),
			fmt.Sprintf("提示：%s %s，%s（策略：%s）。", note.date, note.what.ZH, note.thenDay.ZH, note.policy.ZH))
	}
}

func (s *Schedule) inWindow(second int64) bool {
	at := time.Unix(second, 0)
	return (s.spec.Start == nil || !at.Before(*s.spec.Start)) && (s.spec.End == nil || !at.After(*s.spec.End))
}

var policyWords = map[string]message.Text{ //nolint:gochecknoglobals // a table that nothing writes
	ClockOnce:   {EN: "run once", ZH: "每日一次"},
	ClockSkip:   {EN: "skip", ZH: "跳过"},
	ClockBoth:   {EN: "run on both passes", ZH: "两次都执行"},
	ClockQuartz: {EN: "as Quartz", ZH: "与 Quartz 相同"},
}

// seamNote says what one clock change does to a schedule.
type seamNote struct {
	date         string       // of the first wall time touched
	what         message.Text // "02:30 does not exist"
	then         message.Text // "runs at 03:00"
	thenDay      message.Text // the same where it follows a date
	policy       message.Text
	wall, offset int64 // the first wall time touched, and the offset before the change
}

// noteAt looks at the change to offsets[i]. ok is false when it changes nothing that
// one would notice.
func (s *Schedule) noteAt(i int) (note seamNote, ok bool) {
	z := s.zone
	seam, before, after := z.startsAt[i], z.offsets[i-1], z.offsets[i]
	from, until := seam+min(before, after), seam+max(before, after)
	wall := s.cron.next(from)
	if wall >= until {
		return seamNote{}, false
	}
	note = seamNote{
		date: time.Unix(wall, 0).UTC().Format("2006-01-02"), policy: policyWords[s.spec.ClockChange],
		wall: wall, offset: before,
	}
	at := wallClock(wall)
	if after > before {
		note.what = message.Text{EN: at + " does not exist", ZH: "不存在 " + at}
		if s.inGap && after-before <= longestShift {
			then := wallClock(seam + after)
			note.then = message.Text{EN: "runs at " + then, ZH: "将于 " + then + " 执行"}
			note.thenDay = message.Text{ZH: "当日" + note.then.ZH}
			return note, true
		}
		if !s.cron.fixed {
			// A beat loses nothing, unless all of its day was in the gap.
			startOfDay := wall - wall%secondsPerDay
			first := s.cron.next(startOfDay)
			rest := s.cron.next(until)
			if first < from || rest < startOfDay+secondsPerDay {
				return seamNote{}, false
			}
		}
		note.then = message.Text{EN: "does not run", ZH: "不执行"}
		note.thenDay = message.Text{ZH: "当日不执行"}
		return note, true
	}
	note.what = message.Text{EN: at + " happens twice", ZH: at + " 出现两次"}
	switch {
	case s.second && s.cron.fixed:
		note.then = message.Text{EN: "runs on the second pass", ZH: "在第二次执行"}
	case s.second:
		note.then = message.Text{EN: "runs on the second pass and rests during the first", ZH: "只在第二次执行，第一次期间停顿"}
	case s.first:
		note.then = message.Text{EN: "runs on the first pass", ZH: "在第一次执行"}
	case s.cron.fixed:
		note.then = message.Text{EN: "runs on both passes", ZH: "两次都执行"}
	default:
		return seamNote{}, false
	}
	note.thenDay = message.Text{ZH: "当日" + note.then.ZH}
	return note, true
}

// wallClock writes the time of day of a wall second, without seconds where they are 0.
func wallClock(wall int64) string {
	t := time.Unix(wall, 0).UTC()
	if t.Second() != 0 {
		return t.Format("15:04:05")
	}
	return t.Format("15:04")
}
