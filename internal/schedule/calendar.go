package schedule

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ax-scheduler/ax/internal/message"
)

const (
	// MaxCalendars bounds the calendars of one trigger.
	MaxCalendars = 5
	// MaxCalendarEntries bounds the dates, ranges, times and periods of one calendar, since each trigger
	// that uses it carries them.
	MaxCalendarEntries = 500

	// maxLeftOut bounds how many stretches that are left out, one after another, are passed in the search for
	// the next fire: some 27 years of a daily one. What lies behind so many is never reached.
	maxLeftOut = 10_000

	lastDay = (afterAll + 2*secondsPerDay) / secondsPerDay
)

// Calendar says when nothing fires: all that any of its parts covers is left out.
type Calendar struct {
	Name string `json:"name"`
	// Version is the one of the named calendar that this is a copy of.
	Version int64 `json:"version,omitempty"`
	// Zone is whose days and hours are meant, an IANA name; empty is the zone of the trigger.
	Zone string `json:"zone,omitempty"`
	// Dates are whole days: "2026-10-01", or "10-01" for one in each year.
	Dates []string `json:"dates,omitempty"`
	// Ranges are days in a row.
	Ranges []DateRange `json:"ranges,omitempty"`
	// Weekdays are SUN to SAT.
	Weekdays []string `json:"weekdays,omitempty"`
	// Times are hours of each day.
	Times []TimeRange `json:"times,omitempty"`
	// Periods are stretches of time, whatever the zone.
	Periods []Period `json:"periods,omitempty"`
}

// DateRange is days from From to To, both included and both of one form: with a year, or without one for a
// stretch of each year, which may go over the turn of it.
type DateRange struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// TimeRange is the time of day from From, included, to To, excluded: "22:00" to "06:00" goes over midnight.
type TimeRange struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Period is the time from From, included, to To, excluded.
type Period struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// stretch is numbers from from to to; whether to is one of them, its user says.
type stretch struct{ from, to int64 }

// exclusion is a compiled Calendar.
type exclusion struct {
	name     string
	zone     *zone
	weekdays uint8
	yearly   [13]uint32 // [month], bit 1 = the 1st
	runs     []stretch  // day numbers, both included; sorted, apart
	times    []stretch  // seconds of the day, to excluded; sorted, apart
	periods  []stretch  // milliseconds, to excluded; sorted, apart
	always   bool       // no moment is left
}

// Check says what is wrong with a calendar; nil = nothing. Fields are named as in JSON, such as "dates[2]".
func (c Calendar) Check() *message.Invalid {
	_, refusal := c.compile(nil)
	return refusal
}

// Days lists the days of a year that are left out as a whole, in order.
func (c Calendar) Days(year int) ([]string, error) {
	x, refusal := c.compile(nil)
	if refusal != nil {
		return nil, refusal
	}
	out := []string{}
	if year < firstYear || year > lastYear {
		return out, nil
	}
	for day := daysFrom(year, 1); day < daysFrom(year+1, 1); day++ {
		if x.dayOut(day) {
			y, m, d := civil(day)
			out = append(out, fmt.Sprintf("%04d-%02d-%02d", y, m, d))
		}
	}
	return out, nil
}

func (c Calendar) compile(ofTrigger *zone) (*exclusion, *message.Invalid) {
	if n := len(c.Dates) + len(c.Ranges) + len(c.Times) + len(c.Periods); n > MaxCalendarEntries {
		return nil, refuseField("dates", codeCalendarSize, fmt.Sprint(n), "",
			fmt.Sprintf("A calendar has at most %d dates, ranges, times and periods together; got %d. Write days in a row as one range, or make two calendars.", MaxCalendarEntries, n),
			fmt.Sprintf("一个日历的日期、日期范围、时段和时间段合计最多 %d 个，当前 %d 个。请把连续的日期写成一个范围，或拆分为两个日历。", MaxCalendarEntries, n))
	}
	x := &exclusion{name: c.Name, zone: ofTrigger}
	if c.Zone != "" || ofTrigger == nil {
		z, refusal := zoneOf(c.Zone)
		if refusal != nil {
			return nil, refusal
		}
		x.zone = z
	}
	for i, text := range c.Dates {
		if refusal := x.addDays(fmt.Sprintf("dates[%d]", i), text, text); refusal != nil {
			return nil, refusal
		}
	}
	for i, r := range c.Ranges {
		if refusal := x.addDays(fmt.Sprintf("ranges[%d]", i), r.From, r.To); refusal != nil {
			return nil, refusal
		}
	}
	for i, text := range c.Weekdays {
		d := slices.IndexFunc(weekdayNames, func(name string) bool { return strings.EqualFold(name, text) || strings.EqualFold(name[:3], text) })
		if d < 0 {
			return nil, refuseField(fmt.Sprintf("weekdays[%d]", i), codeCalendarWeekday, text, "SUN",
				fmt.Sprintf("%q is no weekday; write SUN, MON, TUE, WED, THU, FRI or SAT.", text),
				fmt.Sprintf("“%s” 不是星期；请写 SUN、MON、TUE、WED、THU、FRI 或 SAT。", text))
		}
		x.weekdays |= 1 << d
	}
	for i, r := range c.Times {
		if refusal := x.addTimes(fmt.Sprintf("times[%d]", i), r); refusal != nil {
			return nil, refusal
		}
	}
	for i, p := range c.Periods {
		if !p.From.Before(p.To) {
			return nil, refuseField(fmt.Sprintf("periods[%d].to", i), codeCalendarRange, p.To.Format(time.RFC3339), "",
				"A period ends after it begins.", "时间段的结束必须晚于开始。")
		}
		x.periods = append(x.periods, stretch{p.From.UnixMilli(), ceilMillis(p.To)})
	}
	x.runs, x.times, x.periods = merge(x.runs, 1), merge(x.times, 0), merge(x.periods, 0)
	x.always = x.weekdays == allWeekdays || len(x.times) == 1 && x.times[0] == stretch{0, secondsPerDay} || x.eachYear()
	return x, nil
}

func zoneOf(name string) (*zone, *message.Invalid) {
	z, err := loadZone(name)
	if err != nil {
		refusal, _ := err.(*message.Invalid) //nolint:errorlint // loadZone returns nothing else
		return nil, refusal
	}
	return z, nil
}

// eachYear tells whether all days of each year are left out.
func (x *exclusion) eachYear() bool {
	for m := 1; m <= 12; m++ {
		if all := uint32(1)<<(monthLength(2000, m)+1) - 2; x.yearly[m]&all != all {
			return false
		}
	}
	return true
}

// merge sorts stretches and joins those that meet; apart is how far from one another two that meet may be.
func merge(list []stretch, apart int64) []stretch {
	slices.SortFunc(list, func(a, b stretch) int { return cmp.Compare(a.from, b.from) })
	out := list[:0]
	for _, s := range list {
		if n := len(out); n > 0 && s.from <= out[n-1].to+apart {
			out[n-1].to = max(out[n-1].to, s.to)
			continue
		}
		out = append(out, s)
	}
	return out
}

// date reads "2026-10-01" or "10-01"; year is 0 for the second.
func date(text string) (year, month, day int, ok bool) {
	form := "2006-01-02"
	if len(text) == len("01-02") {
		text, form = "2000-"+text, "2006-01-02"
		t, err := time.Parse(form, text)
		return 0, int(t.Month()), t.Day(), err == nil
	}
	t, err := time.Parse(form, text)
	return t.Year(), int(t.Month()), t.Day(), err == nil && t.Year() >= firstYear && t.Year() <= lastYear
}

func (x *exclusion) addDays(field, from, to string) *message.Invalid {
	for _, text := range []string{from, to} {
		if _, _, _, ok := date(text); !ok {
			return refuseField(field, codeCalendarDate, text, "",
				fmt.Sprintf("%q is no date; write 2026-10-01, or 10-01 for each year; years from 1970 to 2199.", text),
				fmt.Sprintf("“%s” 不是日期；请写 2026-10-01，每年重复请写 10-01；年份为 1970 至 2199。", text))
		}
	}
	y1, m1, d1, _ := date(from)
	y2, m2, d2, _ := date(to)
	first, last := daysFrom(max(y1, 1), m1)+int64(d1), daysFrom(max(y2, 1), m2)+int64(d2)
	if (y1 == 0) != (y2 == 0) || y1 != 0 && last < first {
		return refuseField(field, codeCalendarRange, from+" - "+to, "",
			fmt.Sprintf("%s to %s is no range; both ends have a year or none has, and with years the end is not before the start.", from, to),
			fmt.Sprintf("%s 至 %s 不是有效范围；两端都带年份或都不带年份，带年份时结束不能早于开始。", from, to))
	}
	if y1 != 0 {
		x.runs = append(x.runs, stretch{first - 1, last - 1})
		return nil
	}
	for m, d := m1, d1; ; {
		x.yearly[m] |= 1 << d
		if m == m2 && d == d2 {
			return nil
		}
		if d++; d > monthLength(2000, m) {
			m, d = m%12+1, 1
		}
	}
}

func (x *exclusion) addTimes(field string, r TimeRange) *message.Invalid {
	var ends [2]int64
	for i, text := range []string{r.From, r.To} {
		t, err := time.Parse("15:04:05", text)
		if err != nil {
			t, err = time.Parse("15:04", text)
		}
		ends[i] = int64(t.Hour())*3600 + int64(t.Minute())*60 + int64(t.Second())
		if i == 1 && text == "24:00" {
			ends[i], err = secondsPerDay, nil
		}
		if err != nil {
			return refuseField(field, codeCalendarTime, text, "22:00",
				fmt.Sprintf("%q is no time of day; write 22:00 or 22:00:30; the end of the day is 24:00.", text),
				fmt.Sprintf("“%s” 不是时刻；请写 22:00 或 22:00:30；一天的结束写 24:00。", text))
		}
	}
	switch from, to := ends[0], ends[1]; {
	case from == to:
		return refuseField(field, codeCalendarRange, r.From+" - "+r.To, "00:00 - 24:00",
			fmt.Sprintf("%s to %s is empty; for the whole day write 00:00 to 24:00.", r.From, r.To),
			fmt.Sprintf("%s 至 %s 为空；全天请写 00:00 至 24:00。", r.From, r.To))
	case from < to:
		x.times = append(x.times, stretch{from, to})
	default:
		x.times = append(x.times, stretch{from, secondsPerDay})
		if to > 0 {
			x.times = append(x.times, stretch{0, to})
		}
	}
	return nil
}

// find returns the stretch that begins last at or before v; ok is false when there is none.
func find(list []stretch, v int64) (s stretch, ok bool) {
	low, high := 0, len(list)
	for low < high {
		middle := int(uint(low+high) >> 1)
		if list[middle].from <= v {
			low = middle + 1
		} else {
			high = middle
		}
	}
	if low == 0 {
		return stretch{}, false
	}
	return list[low-1], true
}

func (x *exclusion) dayOut(day int64) bool {
	if x.always || x.weekdays>>weekdayOf(day)&1 != 0 {
		return true
	}
	if run, ok := find(x.runs, day); ok && day <= run.to {
		return true
	}
	_, m, d := civil(day)
	return x.yearly[m]>>d&1 != 0
}

// openDay returns the first day from day on that is not left out, or never.
func (x *exclusion) openDay(day int64) int64 {
	for day <= lastDay && !x.always {
		if run, ok := find(x.runs, day); ok && day <= run.to {
			day = run.to + 1
			continue
		}
		if !x.dayOut(day) {
			return day
		}
		day++
	}
	return never
}

// until returns up to when a moment and all after it are left out: a moment that itself may be left out
// again, by another rule. 0 = the moment is not left out.
func (x *exclusion) until(ms int64) int64 {
	if p, ok := find(x.periods, ms); ok && ms < p.to {
		return p.to
	}
	second := floorDiv(ms, 1000)
	i := x.zone.index(second)
	offset := x.zone.offsets[i]
	wall := second + offset
	day := floorDiv(wall, secondsPerDay)
	var end int64
	if x.dayOut(day) {
		open := x.openDay(day + 1)
		if open == never {
			return never
		}
		end = open*secondsPerDay - offset
	} else if w, ok := find(x.times, wall-day*secondsPerDay); ok && wall-day*secondsPerDay < w.to {
		end = day*secondsPerDay + w.to - offset
	} else {
		return 0
	}
	// Only up to the next change of the clock is the wall time as far away as it looks. All changes together
	// move it by less than two days, so what is further inside the days that are left out is left out in any case.
	if i+1 < len(x.zone.startsAt) {
		if seam := x.zone.startsAt[i+1]; end > seam {
			far := end - 2*secondsPerDay
			if end = seam; seam-second > 2*secondsPerDay {
				end = max(seam, far)
			}
		}
	}
	return end * 1000
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// compileCalendars reads the calendars that a spec carries.
func (s *Schedule) compileCalendars() *message.Invalid {
	names := s.spec.Calendars
	if len(names) > MaxCalendars {
		return refuseField("calendars", codeCalendarSize, fmt.Sprint(len(names)), "",
			fmt.Sprintf("A trigger has at most %d calendars; got %d.", MaxCalendars, len(names)), fmt.Sprintf("一个触发器最多使用 %d 个日历，当前 %d 个。", MaxCalendars, len(names)))
	}
	for i, name := range names {
		if i >= len(s.spec.Excluded) || s.spec.Excluded[i].Name != name {
			return UnknownCalendar(fmt.Sprintf("calendars[%d]", i), name)
		}
		x, refusal := s.spec.Excluded[i].compile(s.zone)
		if refusal != nil {
			refusal.Field = fmt.Sprintf("calendars[%d].%s", i, refusal.Field)
			return refusal
		}
		s.excluded = append(s.excluded, x)
	}
	return nil
}

// UnknownCalendar refuses the name of a calendar that is not there.
func UnknownCalendar(field, name string) *message.Invalid {
	return refuseField(field, codeCalendarUnknown, name, "",
		fmt.Sprintf("There is no calendar %q in the namespace; create it first, or take it out.", name),
		fmt.Sprintf("该命名空间没有日历 “%s”；请先创建，或将其移除。", name))
}

// leftOut returns up to when a due time and all after it are left out, and by which calendar. 0 = it is not.
func (s *Schedule) leftOut(dueAt time.Time) (until int64, by *exclusion) {
	for _, x := range s.excluded {
		if u := x.until(dueAt.UnixMilli()); u > until {
			until, by = u, x
		}
	}
	return until, by
}

// noteLook bounds how many fires that are left out are counted for a note.
const noteLook = 1000

// gap says what calendars left out between two instants, or is nil.
func (s *Schedule) gap(after, dueAt time.Time) *message.Text {
	if len(s.excluded) == 0 {
		return nil
	}
	var names []string
	var first time.Time
	n := 0
	for at := after; n < noteLook; n++ {
		next, ok := s.planned(at)
		if !ok || !next.Before(dueAt) {
			break
		}
		if n == 0 {
			first = next
		}
		if _, by := s.leftOut(next); by != nil && !slices.Contains(names, by.name) {
			names = append(names, by.name)
		}
		at = next
	}
	if n == 0 {
		return nil
	}
	from := first.In(s.zone.loc).Format("2006-01-02 15:04:05")
	en, zh := fmt.Sprintf("left out: %d before this, from %s", n, from), fmt.Sprintf("此前排除 %d 次，自 %s 起", n, from)
	switch n {
	case 1:
		en, zh = "left out before this: "+from, "此前排除："+from
	case noteLook:
		en, zh = fmt.Sprintf("left out: %d or more before this, from %s", n, from), fmt.Sprintf("此前排除 %d 次以上，自 %s 起", n, from)
	}
	return &message.Text{EN: en + " (calendar " + strings.Join(names, ", ") + ")", ZH: zh + "（日历 " + strings.Join(names, "、") + "）"}
}

// excludesAll says that calendars leave no fire after an instant, or is nil.
func (s *Schedule) excludesAll(now time.Time) *message.Invalid {
	if _, ok := s.planned(now); !ok || len(s.excluded) == 0 {
		return nil
	}
	list := strings.Join(s.spec.Calendars, ", ")
	return refuseField("calendars", codeAllLeftOut, list, "",
		fmt.Sprintf("The calendars leave no firing: all are left out by %s. Take a calendar out, or change the times.", list),
		fmt.Sprintf("日历没有留下任何触发时刻：全部被 %s 排除。请移除日历或修改时间。", list))
}

// moved is the first moment from a due time on that no calendar leaves out.
func (s *Schedule) moved(dueAt time.Time) (time.Time, bool) {
	for range maxLeftOut {
		until, _ := s.leftOut(dueAt)
		if until == 0 {
			return dueAt, true
		}
		if until == never {
			break
		}
		dueAt = time.UnixMilli(until)
	}
	return time.Time{}, false
}
