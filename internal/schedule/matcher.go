package schedule

import (
	"math"
	"math/bits"
)

const (
	secondsPerDay = 24 * 60 * 60
	allWeekdays   = 1<<7 - 1
	// never is later than any wall time.
	never = math.MaxInt64
)

// How the two day fields join.
type dayRule uint8

const (
	byMonthDay  dayRule = iota // only the day of month counts
	byWeekday                  // only the weekday counts
	eitherOfTwo                // Unix, both restricted
	bothOfTwo                  // Unix, one of them starts with a star
)

// matcher is a cron expression as sets of bits. It works on wall seconds: the seconds
// from 1970-01-01 00:00:00 to a wall time, counted as if the clock never changed.
type matcher struct {
	seconds, minutes uint64
	hours            uint32
	months           uint16 // bit 1 = January
	weekdays         uint8  // bit 0 = Sunday
	lastWeekdays     uint8
	nthWeekdays      [6]uint8 // [n] holds the weekdays of d#n
	hasNth           bool
	days             dayRule
	// fixed: second, minute and hour are plain numbers, so that this is an
	// appointment on the clock; else it is a beat that must not stumble.
	fixed     bool
	firstTime int64  // second of day of the first fire of a day
	monthDays uint32 // bit 1 = the 1st
	fromEnd   uint32 // bit n = n days before the last
	near      uint32 // nW, bit n
	nearEnd   uint32 // L-nW, bit n
	years     [4]uint64
}

func newMatcher(e *expression) matcher {
	m := matcher{fixed: true}
	m.seconds = e.set(second)
	m.minutes = e.set(minute)
	m.hours = uint32(e.set(hour))
	m.months = uint16(e.set(month))
	for _, k := range []int{second, minute, hour} {
		for _, it := range e.items[k] {
			m.fixed = m.fixed && it.form == formValue
		}
	}
	m.firstTime = int64(bits.TrailingZeros32(m.hours))*3600 +
		int64(bits.TrailingZeros64(m.minutes))*60 + int64(bits.TrailingZeros64(m.seconds))
	for _, it := range e.items[year] {
		first, last := it.from, it.to
		if it.form == formAll {
			last = lastYear
		}
		for y := first; y <= last; y += it.step {
			m.years[(y-firstYear)>>6] |= 1 << ((y - firstYear) & 63)
		}
	}
	for _, it := range e.items[dayOfMonth] {
		switch it.form {
		case formLast:
			m.fromEnd |= 1 << it.step
		case formNear:
			m.near |= 1 << it.from
		case formNearLast:
			m.nearEnd |= 1 << it.step
		}
	}
	m.monthDays = uint32(e.set(dayOfMonth))
	for _, it := range e.items[weekday] {
		switch it.form {
		case formLastOf:
			m.lastWeekdays |= 1 << (it.from - 1)
		case formNth:
			m.nthWeekdays[it.step] |= 1 << (it.from - 1)
			m.hasNth = true
		}
	}
	m.weekdays = uint8(e.set(weekday))
	switch {
	case !e.unix && e.texts[weekday] == "?":
		m.days = byMonthDay
	case !e.unix:
		m.days = byWeekday
	case e.texts[weekday] == "*":
		m.days = byMonthDay
	case e.texts[dayOfMonth] == "*":
		m.days = byWeekday
	case e.texts[dayOfMonth][0] == '*' || e.texts[weekday][0] == '*':
		// As cronie does and documents; see also the warning.
		m.days = bothOfTwo
	default:
		m.days = eitherOfTwo
	}
	return m
}

// set is the plain values of field k as bits; weekdays from 0 = Sunday.
func (e *expression) set(k int) uint64 {
	var set uint64
	rule := &e.rules[k]
	size := rule.max - rule.min + 1
	base := rule.min
	if k == weekday {
		size = 7
	}
	for _, it := range e.items[k] {
		switch it.form {
		case formAll, formValue, formRange, formOpenStep, formStep:
		default:
			continue
		}
		from, to := it.from, it.to
		if e.unix && k == weekday && from == 7 && to < 7 {
			from = 0
		}
		if to < from { // around the end of the field: 22-2, FRI-MON
			to += size
		}
		for v := from; v <= to; v += it.step {
			bit := base + (v-base)%size
			if k == weekday {
				bit = (v - base) % 7
			}
			set |= 1 << bit
		}
	}
	return set
}

// next returns the first wall second from wall on that matches, or never. The search
// is bounded: at most one look at each month of 1970 to 2199.
func (m *matcher) next(wall int64) int64 {
	day := wall / secondsPerDay
	second := wall % secondsPerDay
	if wall < 0 {
		day, second = 0, 0
	}
	y, mo, d := civil(day)
	// Most calls find their fire on the same day or soon after it, and most months
	// match as a whole; the loop then runs once or twice.
	for y <= lastYear {
		if m.years[(y-firstYear)>>6]>>((y-firstYear)&63)&1 == 0 {
			if y = m.nextYear(y + 1); y > lastYear {
				return never
			}
			mo, d, second = 1, 1, 0
		}
		if m.months>>mo&1 == 0 {
			later := m.months >> mo << mo
			if later == 0 {
				y, mo, d, second = y+1, 1, 1, 0
				continue
			}
			mo, d, second = bits.TrailingZeros16(later), 1, 0
		}
		first := daysFrom(y, mo)
		mask := m.monthMask(first, monthLength(y, mo))
		if mask>>d&1 != 0 {
			if t := m.timeFrom(second); t >= 0 {
				return (first+int64(d)-1)*secondsPerDay + t
			}
		}
		if later := mask >> (d + 1) << (d + 1); later != 0 {
			return (first+int64(bits.TrailingZeros32(later))-1)*secondsPerDay + m.firstTime
		}
		mo, d, second = mo+1, 1, 0
		if mo > 12 {
			y, mo = y+1, 1
		}
	}
	return never
}

func (m *matcher) nextYear(y int) int {
	for i := y - firstYear; i < 256; {
		if rest := m.years[i>>6] >> (i & 63); rest != 0 {
			return firstYear + i + bits.TrailingZeros64(rest)
		}
		i = (i>>6 + 1) << 6
	}
	return lastYear + 1
}

// timeFrom returns the first second of the day from second on that matches, or -1.
func (m *matcher) timeFrom(second int64) int64 {
	h, mi, s := second/3600, second/60%60, second%60
	if m.hours>>h&1 != 0 {
		if m.minutes>>mi&1 != 0 {
			if rest := m.seconds >> s; rest != 0 {
				return second + int64(bits.TrailingZeros64(rest))
			}
		}
		if rest := m.minutes >> (mi + 1); rest != 0 {
			mi += 1 + int64(bits.TrailingZeros64(rest))
			return h*3600 + mi*60 + int64(bits.TrailingZeros64(m.seconds))
		}
	}
	if rest := m.hours >> (h + 1); rest != 0 {
		return m.firstTime + (h+1+int64(bits.TrailingZeros32(rest))-int64(bits.TrailingZeros32(m.hours)))*3600
	}
	return -1
}

// monthMask returns the matching days of the month whose first day is day number
// first; bit 1 is the 1st.
func (m *matcher) monthMask(first int64, length int) uint32 {
	all := uint32(1)<<(length+1) - 2
	switch m.days {
	case byMonthDay:
		return m.monthDayMask(first, length) & all
	case byWeekday:
		return m.weekdayMask(first, length) & all
	case eitherOfTwo:
		return (m.monthDayMask(first, length) | m.weekdayMask(first, length)) & all
	}
	return m.monthDayMask(first, length) & m.weekdayMask(first, length) & all
}

func (m *matcher) monthDayMask(first int64, length int) uint32 {
	mask := m.monthDays
	if m.fromEnd|m.near|m.nearEnd == 0 {
		return mask
	}
	for set := m.fromEnd; set != 0; set &= set - 1 {
		if d := length - bits.TrailingZeros32(set); d >= 1 {
			mask |= 1 << d
		}
	}
	for set := m.near; set != 0; set &= set - 1 {
		if d := bits.TrailingZeros32(set); d <= length {
			mask |= 1 << nearestWeekday(first, d, length)
		}
	}
	for set := m.nearEnd; set != 0; set &= set - 1 {
		if d := length - bits.TrailingZeros32(set); d >= 1 {
			mask |= 1 << nearestWeekday(first, d, length)
		}
	}
	return mask
}

// nearestWeekday is the day from Monday to Friday nearest to day d, within the month.
func nearestWeekday(first int64, d, length int) int {
	switch weekdayOf(first + int64(d) - 1) {
	case 6:
		if d == 1 {
			return 3
		}
		return d - 1
	case 0:
		if d == length {
			return d - 2
		}
		return d + 1
	}
	return d
}

func (m *matcher) weekdayMask(first int64, length int) uint32 {
	w := weekdayOf(first)
	mask := spread(m.weekdays, w)
	if m.lastWeekdays != 0 {
		mask |= spread(m.lastWeekdays, w) &^ (1<<(length-6) - 1)
	}
	if m.hasNth {
		for n := 1; n <= 5; n++ {
			mask |= spread(m.nthWeekdays[n], w) & (0x7f << (1 + 7*(n-1)))
		}
	}
	return mask
}

// spread lays a set of weekdays over the days of a month that starts on weekday w.
func spread(weekdays uint8, w int) uint32 {
	turned := uint64(weekdays>>w|weekdays<<(7-w)) & allWeekdays
	// One copy for each of the five weeks, from bit 1 on.
	return uint32(turned * (1<<1 | 1<<8 | 1<<15 | 1<<22 | 1<<29))
}

func weekdayOf(day int64) int { return int((day + 4) % 7) } // 1970-01-01 was a Thursday

// civil is the date of a day number from 1970-01-01 = 0 on, not before. It is the
// algorithm of Howard Hinnant's "chrono-compatible low-level date algorithms": years
// start in March, so that the leap day is the last.
func civil(day int64) (y, m, d int) {
	z := day + 719468 // days from 0000-03-01
	era := z / 146097
	doe := z % 146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	d = int(doy - (153*mp+2)/5 + 1)
	m = int(mp + 3)
	if m > 12 {
		m -= 12
	}
	y = int(yoe + era*400)
	if m <= 2 {
		y++
	}
	return y, m, d
}

// daysFrom is the day number of the first of a month, the inverse of civil.
func daysFrom(y, m int) int64 {
	if m <= 2 {
		y--
		m += 12
	}
	era := y / 400
	yoe := y % 400
	doy := (153*(m-3) + 2) / 5
	doe := yoe*365 + yoe/4 - yoe/100 + doy
	return int64(era)*146097 + int64(doe) - 719468
}

func monthLength(y, m int) int {
	if m == 2 {
		if y%4 == 0 && (y%100 != 0 || y%400 == 0) {
			return 29
		}
		return 28
	}
	return 30 + (m+m>>3)&1
}
