package schedule

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ax-scheduler/ax/internal/message"
)

var weekdayZH = [7]string{"周日", "周一", "周二", "周三", "周四", "周五", "周六"} //nolint:gochecknoglobals // a table that nothing writes

var monthZH = [13]string{"", "一月", "二月", "三月", "四月", "五月", "六月", "七月", "八月", "九月", "十月", "十一月", "十二月"} //nolint:gochecknoglobals // a table that nothing writes

var ordinalsEN = [6]string{"", "first", "second", "third", "fourth", "fifth"} //nolint:gochecknoglobals // a table that nothing writes

var ordinalsZH = [6]string{"", "一", "二", "三", "四", "五"} //nolint:gochecknoglobals // a table that nothing writes

// words is a phrase under construction; the two languages grow side by side.
type words = message.Text

func weekdayEN(d int) string { return title(weekdayNames[d]) }

func monthEN(m int) string { return title(monthNames[m-1]) }

func title(upper string) string { return upper[:1] + strings.ToLower(upper[1:]) }

// Text says the schedule in words. Weekdays are names, since their numbers mean
// different days in different dialects. The zone is not part of it.
func (s *Schedule) Text() message.Text {
	var text words
	switch {
	case s.isCron:
		text = s.parsed().words()
	case s.gridMs > 0:
		span := spanWords(s.every)
		text = words{EN: "every " + strings.TrimPrefix(span.EN, "1 "), ZH: "每 " + span.ZH}
		if strings.Contains(span.EN, " and ") {
			text.EN = "every " + span.EN
		}
	case s.spec.Kind == FixedDelay:
		text = words{
			EN: spanWords(s.every).EN + " after the end of the last run",
			ZH: "上次执行结束后 " + spanWords(s.every).ZH,
		}
	case s.spec.Kind == Once:
		at := time.UnixMilli(s.onceMs).In(s.zone.loc).Format("2006-01-02 15:04:05.999")
		text = words{EN: "once at " + at, ZH: "于 " + at + " 执行一次"}
	case s.spec.Kind == Event:
		text = words{EN: "when its event arrives", ZH: "收到事件时"}
	case s.spec.Kind == Delayed:
		text = words{EN: "at the time that was asked for", ZH: "在请求的时间执行"}
	case s.spec.Kind == Dependency:
		text = words{EN: "when the jobs before it end", ZH: "前置任务结束时"}
	case s.spec.Kind == Manual:
		text = words{EN: "when a person starts it", ZH: "手动触发"}
	case s.spec.Kind == API:
		text = words{EN: "when a program starts it", ZH: "通过 API 触发"}
	}
	if s.spec.Start != nil {
		at := s.spec.Start.In(s.zone.loc).Format("2006-01-02 15:04:05")
		text = words{EN: text.EN + ", from " + at, ZH: text.ZH + "，自 " + at + " 起"}
	}
	if s.spec.End != nil {
		at := s.spec.End.In(s.zone.loc).Format("2006-01-02 15:04:05")
		text = words{EN: text.EN + ", until " + at, ZH: text.ZH + "，至 " + at + " 止"}
	}
	if len(s.spec.Calendars) > 0 {
		text = words{EN: text.EN + ", except as calendar " + joinEN(s.spec.Calendars) + " says", ZH: text.ZH + "，日历 " + strings.Join(s.spec.Calendars, "、") + " 排除的除外"}
	}
	if s.spec.Jitter != 0 {
		span := spanWords(time.Duration(s.spec.Jitter))
		text = words{EN: text.EN + ", spread over " + span.EN, ZH: text.ZH + "，分散在 " + span.ZH + "内"}
	}
	text.EN = strings.ToUpper(text.EN[:1]) + text.EN[1:]
	return text
}

// spanWords says an interval as a person would: "1 minute and 30 seconds".
func spanWords(span time.Duration) words {
	var en, zh []string
	for _, unit := range []struct {
		size   time.Duration
		en, zh string
	}{
		{24 * time.Hour, "day", "天"},
		{time.Hour, "hour", "小时"},
		{time.Minute, "minute", "分钟"},
		{time.Second, "second", "秒"},
		{time.Millisecond, "millisecond", "毫秒"},
	} {
		n := span / unit.size
		span %= unit.size
		if n == 0 {
			continue
		}
		name := unit.en
		if n != 1 {
			name += "s"
		}
		en, zh = append(en, fmt.Sprintf("%d %s", n, name)), append(zh, fmt.Sprintf("%d %s", n, unit.zh))
	}
	return words{EN: joinEN(en), ZH: strings.Join(zh, " ")}
}

// parsed reads the expression again: a hundred thousand schedules need not carry what
// only a person who looks at one of them wants.
func (s *Schedule) parsed() *expression {
	text := s.spec.Expr
	if s.spec.Dialect == Descriptor {
		text, _, _ = parseDescriptor(text)
	}
	e, _ := parseCron(text, s.unix)
	return e
}

func (e *expression) words() words {
	time, appointment := e.timeWords()
	day := e.dayWords()
	if day.EN == "" {
		if !appointment {
			return time
		}
		return words{EN: time.EN + " every day", ZH: "每天 " + time.ZH}
	}
	if appointment {
		return words{EN: time.EN + " " + day.EN, ZH: day.ZH + " " + time.ZH}
	}
	return words{EN: time.EN + ", " + day.EN, ZH: day.ZH + "，" + time.ZH}
}

// timeWords says second, minute and hour. appointment tells whether it is a short list
// of times of day.
func (e *expression) timeWords() (text words, appointment bool) {
	seconds, minutes, hours := e.set(second), e.set(minute), e.set(hour)
	plain := true
	for _, k := range []int{second, minute, hour} {
		for _, it := range e.items[k] {
			plain = plain && it.form != formAll
		}
	}
	if n := bits.OnesCount64(seconds) * bits.OnesCount64(minutes) * bits.OnesCount64(hours); plain && n <= 6 {
		times := make([]string, 0, n)
		for _, h := range values(hours) {
			for _, m := range values(minutes) {
				for _, s := range values(seconds) {
					at := fmt.Sprintf("%02d:%02d", h, m)
					if seconds != 1 {
						at += fmt.Sprintf(":%02d", s)
					}
					times = append(times, at)
				}
			}
		}
		return words{EN: "at " + joinEN(times), ZH: strings.Join(times, "、")}, true
	}
	var en, zh []string
	add := func(textEN, textZH string) { en, zh = append(en, textEN), append(zh, textZH) }
	if seconds != 1 {
		add(e.fieldWords(second, "second", "秒", "at second"))
	}
	switch {
	case minutes == 1 && seconds == 1 && e.set(hour) == 1<<24-1:
		add("every hour", "每小时整点")
	case minutes == 1 && seconds == 1:
		add("on the hour", "整点")
	case e.texts[minute] == "*" && seconds != 1 && e.texts[second] != "*" && !e.stepped(second):
		add("of every minute", "每分钟")
	case e.texts[minute] != "*" || seconds == 1:
		add(e.fieldWords(minute, "minute", "分钟", "at minute"))
	}
	if e.set(hour) != 1<<24-1 {
		if e.stepped(hour) {
			add(e.fieldWords(hour, "hour", "小时", ""))
		} else {
			list := ranges(hours)
			add("in hour"+plural(list)+" "+joinEN(list), strings.Join(list, "、")+" 点")
		}
	} else if minutes != 1 && e.texts[minute] != "*" && !e.stepped(minute) {
		add("of every hour", "每小时")
	}
	slices.Reverse(zh) // Chinese names the larger unit first
	return words{EN: strings.Join(en, " "), ZH: joinZH(zh...)}, false
}

// joinZH sets Chinese texts together, with a blank only where a number meets them.
func joinZH(parts ...string) string {
	text := ""
	for _, part := range parts {
		if text != "" && part != "" && (part[0] < 0x80) != (text[len(text)-1] < 0x80) {
			text += " "
		}
		text += part
	}
	return text
}

// on puts the preposition before days that need one.
func on(days string) string {
	if strings.HasPrefix(days, "every ") || strings.Contains(days, "day to ") {
		return days
	}
	return "on " + days
}

// stepped tells whether field k is one open step.
func (e *expression) stepped(k int) bool {
	return len(e.items[k]) == 1 && e.items[k][0].form == formOpenStep
}

// plural is the s after a unit that more than one number follows.
func plural(list []string) string {
	if len(list) == 1 && !strings.Contains(list[0], "-") {
		return ""
	}
	return "s"
}

func (e *expression) fieldWords(k int, unitEN, unitZH, at string) (en, zh string) {
	it := e.items[k][0]
	switch {
	case len(e.items[k]) == 1 && it.form == formAll, e.stepped(k) && it.step == 1 && it.from == 0:
		return "every " + unitEN, "每" + unitZH
	case e.stepped(k):
		en, zh = fmt.Sprintf("every %d %ss", it.step, unitEN), fmt.Sprintf("每 %d %s", it.step, unitZH)
		if it.from > 0 {
			en, zh = en+fmt.Sprintf(" from %s %d", unitEN, it.from), fmt.Sprintf("从第 %d %s起每 %d %s", it.from, unitZH, it.step, unitZH)
		}
		return en, zh
	}
	list := ranges(e.set(k))
	return at + plural(list) + " " + joinEN(list), "第 " + strings.Join(list, "、") + " " + unitZH
}

// dayWords says the date fields; both are empty for every day.
func (e *expression) dayWords() words {
	dom, dow := e.monthDayWords(), e.weekdayWords(true)
	var months, years words
	if e.texts[month] != "*" {
		set := e.set(month)
		en, zh := []string{}, []string{}
		for _, m := range values(set) {
			en, zh = append(en, monthEN(m)), append(zh, strconv.Itoa(m))
		}
		months = words{EN: " in " + joinEN(en), ZH: "每年 " + strings.Join(zh, "、") + " 月"}
	}
	if e.texts[year] != "*" {
		years = words{EN: " in " + e.texts[year], ZH: e.texts[year] + " 年"}
		if months.EN != "" {
			years.EN = " " + e.texts[year]
		}
		months.ZH = strings.TrimPrefix(months.ZH, "每年")
	}
	inMonth := months.EN != ""
	if !inMonth && dom.EN != "" {
		dom.EN += " of the month"
	}
	var day words
	switch {
	case dom.EN == "" && dow.EN == "":
		if months.EN == "" && years.EN == "" {
			return words{}
		}
		day = words{EN: "every day", ZH: "每天"}
	case dow.EN == "":
		day = words{EN: "on " + dom.EN, ZH: joinZH("每月", dom.ZH)}
		if inMonth {
			day.ZH = dom.ZH
		}
	case dom.EN == "":
		day = words{EN: on(dow.EN), ZH: dow.ZH}
	case e.texts[dayOfMonth][0] == '*' || e.texts[weekday][0] == '*':
		day = words{EN: "on " + dom.EN + " if that is " + strings.TrimPrefix(dow.EN, "every "), ZH: joinZH("每月", dom.ZH, "且为", strings.TrimPrefix(dow.ZH, "每"))}
	default:
		day = words{EN: "on " + dom.EN + " or " + on(dow.EN), ZH: joinZH("每月", dom.ZH, "或", dow.ZH)}
	}
	return words{EN: day.EN + months.EN + years.EN, ZH: joinZH(strings.TrimSpace(years.ZH+months.ZH), day.ZH)}
}

func (e *expression) monthDayWords() words {
	if text := e.texts[dayOfMonth]; text == "*" || text == "?" {
		return words{}
	}
	var en, zh []string
	if e.stepped(dayOfMonth) && bits.OnesCount64(e.set(dayOfMonth)) > 6 {
		it := e.items[dayOfMonth][0]
		return words{
			EN: fmt.Sprintf("each %s day from the %s", ordinal(it.step), ordinal(it.from)),
			ZH: fmt.Sprintf("%d 日起每 %d 天", it.from, it.step),
		}
	}
	if list := ranges(e.set(dayOfMonth)); len(list) > 0 {
		named := make([]string, len(list))
		for i, text := range list {
			named[i] = ordinals(text)
		}
		en, zh = append(en, "the "+joinEN(named)), append(zh, strings.Join(list, "、")+" 日")
	}
	for _, it := range e.items[dayOfMonth] {
		switch {
		case it.form == formLast && it.step == 0:
			en, zh = append(en, "the last day"), append(zh, "最后一天")
		case it.form == formLast:
			en, zh = append(en, fmt.Sprintf("the last day but %d", it.step)), append(zh, fmt.Sprintf("倒数第 %d 天", it.step+1))
		case it.form == formNear:
			en = append(en, fmt.Sprintf("the working day (Monday to Friday) nearest to the %s", ordinal(it.from)))
			zh = append(zh, fmt.Sprintf("离 %d 日最近的工作日（周一至周五）", it.from))
		case it.form == formNearLast && it.step == 0:
			en, zh = append(en, "the last working day (Monday to Friday)"), append(zh, "最后一个工作日（周一至周五）")
		case it.form == formNearLast:
			en = append(en, fmt.Sprintf("the working day (Monday to Friday) nearest to the last day but %d", it.step))
			zh = append(zh, fmt.Sprintf("离倒数第 %d 天最近的工作日（周一至周五）", it.step+1))
		}
	}
	return words{EN: joinEN(en), ZH: strings.Join(zh, "、")}
}

// weekdayWords says the weekdays; with phrase as part of a sentence ("the last
// Wednesday of the month", "每周三"), else bare ("Wednesday", "周三").
func (e *expression) weekdayWords(phrase bool) words {
	if text := e.texts[weekday]; text == "*" || text == "?" {
		return words{}
	}
	var en, zh []string
	set := uint8(e.set(weekday))
	if set != 0 {
		textEN, textZH := weekdaySetWords(set)
		if phrase {
			if !strings.Contains(textEN, " to ") && bits.OnesCount8(set) == 1 {
				textEN = "every " + textEN
			}
			textZH = "每" + textZH
		}
		en, zh = append(en, textEN), append(zh, textZH)
	}
	for _, it := range e.items[weekday] {
		d := (it.from - 1 + 7) % 7
		switch it.form {
		case formLastOf:
			en = append(en, fmt.Sprintf("the last %s of the month", weekdayEN(d)))
			zh = append(zh, "每月最后一个"+weekdayZH[d])
		case formNth:
			en = append(en, fmt.Sprintf("the %s %s of the month", ordinalsEN[it.step], weekdayEN(d)))
			zh = append(zh, "每月第"+ordinalsZH[it.step]+"个"+weekdayZH[d])
		}
	}
	return words{EN: joinEN(en), ZH: strings.Join(zh, "、")}
}

// weekdaySetWords lists weekdays from Monday on, or as a range where they are one.
func weekdaySetWords(set uint8) (en, zh string) {
	if n := bits.OnesCount8(set); n >= 3 && n < 7 {
		for first := range 7 {
			run := uint16(1<<n-1) << first
			if uint8(run|run>>7)&allWeekdays == set {
				last := (first + n - 1) % 7
				return weekdayEN(first) + " to " + weekdayEN(last), weekdayZH[first] + "至" + weekdayZH[last]
			}
		}
	}
	var namesEN, namesZH []string
	for i := range 7 {
		if d := (i + 1) % 7; set>>d&1 != 0 {
			namesEN, namesZH = append(namesEN, weekdayEN(d)), append(namesZH, weekdayZH[d])
		}
	}
	return joinEN(namesEN), strings.Join(namesZH, "、")
}

func values(set uint64) []int {
	list := make([]int, 0, bits.OnesCount64(set))
	for ; set != 0; set &= set - 1 {
		list = append(list, bits.TrailingZeros64(set))
	}
	return list
}

// ranges writes a set with runs of three or more as a-b.
func ranges(set uint64) []string {
	var list []string
	numbers := values(set)
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		if j-i >= 2 {
			list = append(list, fmt.Sprintf("%d-%d", numbers[i], numbers[j]))
			i = j + 1
			continue
		}
		list = append(list, strconv.Itoa(numbers[i]))
		i++
	}
	return list
}

func joinEN(list []string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:len(list)-1], ", ") + " and " + list[len(list)-1]
}

// ordinals writes "1" as 1st and "1-5" as 1st-5th.
func ordinals(text string) string {
	from, to, isRange := strings.Cut(text, "-")
	n, _ := strconv.Atoi(from)
	if !isRange {
		return ordinal(n)
	}
	last, _ := strconv.Atoi(to)
	return ordinal(n) + "-" + ordinal(last)
}

func ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return strconv.Itoa(n) + suffix
}

// refuseNever says why an expression has no date at all.
func refuseNever(e *expression, m *matcher) *message.Invalid {
	en, zh, suggestion := "no date has all that is asked for.", "没有任何日期同时满足各字段。", ""
	text := strings.Join(e.texts[minute:year], " ")
	if e.named > 5 {
		text = e.join(e.texts)
	}
	days, months := values(uint64(m.monthDays)), values(e.set(month))
	plainDays := len(days) > 0 && m.fromEnd|m.near|m.nearEnd == 0 && m.days != byWeekday
	leapOnly := plainDays && len(months) == 1 && months[0] == 2 && days[0] == 29
	shortMonths := plainDays
	for _, month := range months {
		shortMonths = shortMonths && days[0] > monthLength(2000, month)
	}
	switch {
	case shortMonths:
		namesEN, namesZH := make([]string, len(months)), make([]string, len(months))
		for i, month := range months {
			namesEN[i], namesZH[i] = monthEN(month), strconv.Itoa(month)
		}
		daysText := strings.Join(ranges(uint64(m.monthDays)), ",")
		texts := e.texts
		texts[dayOfMonth] = "L"
		if e.unix {
			texts[weekday] = "?"
			suggestion = strings.Join(texts[:year], " ")
		} else {
			suggestion = e.join(texts)
		}
		choose, chooseZH := "", ""
		if e.unix {
			choose, chooseZH = "choose dialect Quartz and ", "将方言选为 Quartz 并"
		}
		if len(months) == 1 {
			en = fmt.Sprintf("%s has no day %s. For the last day of %s %swrite `%s`.", namesEN[0], daysText, namesEN[0], choose, suggestion)
			zh = fmt.Sprintf("%s 月没有 %s 日。若要%s最后一天，请%s写 `%s`。", namesZH[0], daysText, monthZH[months[0]], chooseZH, suggestion)
		} else {
			en = fmt.Sprintf("none of %s has a day %s. For the last day of these months %swrite `%s`.", joinEN(namesEN), daysText, choose, suggestion)
			zh = fmt.Sprintf("%s 月都没有 %s 日。若要这些月的最后一天，请%s写 `%s`。", strings.Join(namesZH, "、"), daysText, chooseZH, suggestion)
		}
	case leapOnly && e.texts[year] != "*":
		texts := e.texts
		texts[dayOfMonth] = "L"
		suggestion = e.join(texts)
		en = fmt.Sprintf("there is no 29 February in the years %s. For the last day of February write `%s`.", e.texts[year], suggestion)
		zh = fmt.Sprintf("%s 年没有 2 月 29 日。若要二月最后一天，请写 `%s`。", e.texts[year], suggestion)
	}
	return refuseField("expr", codeNeverFires, text, suggestion,
		"This schedule never fires: "+en, "该表达式永远不会触发："+zh)
}
