package schedule

import (
	"fmt"
	"time"

	"github.com/ax-scheduler/ax/internal/message"
)

const (
	// beforeAll is a Unix second before each possible fire: the first day of 1970
	// starts up to 14 hours earlier in the east.
	beforeAll = -2 * secondsPerDay
	// afterAll is one after each possible fire: the start of 2200-01-03.
	afterAll = 7258291200
)

// Next returns the first fire strictly after the given instant, in UTC. ok is false
// when there is none any more, and always for kinds that no clock fires (FixedDelay:
// its due time is known when a run ends). It neither blocks nor allocates.
func (s *Schedule) Next(after time.Time) (dueAt time.Time, ok bool) {
	dueAt, ok = s.planned(after)
	if len(s.excluded) == 0 {
		return dueAt, ok
	}
	for n := 0; ok && n < maxLeftOut; n++ {
		until, _ := s.leftOut(dueAt)
		if until == 0 {
			return dueAt, true
		}
		if until == never {
			break
		}
		dueAt, ok = s.planned(time.UnixMilli(until).Add(-1))
	}
	return time.Time{}, false
}

// planned is Next without calendars.
func (s *Schedule) planned(after time.Time) (dueAt time.Time, ok bool) {
	if s.bounded && s.spec.Start != nil && after.Before(*s.spec.Start) {
		after = s.spec.Start.Add(-1)
	}
	switch {
	case s.isCron:
		due, found := s.nextSecond(after.Unix())
		if !found {
			return time.Time{}, false
		}
		dueAt = time.Unix(due, 0).UTC()
	case s.gridMs > 0:
		due, found := s.nextGrid(after)
		if !found {
			return time.Time{}, false
		}
		dueAt = time.UnixMilli(due).UTC()
	case s.spec.Kind == Once:
		dueAt = time.UnixMilli(s.onceMs).UTC()
		return dueAt, dueAt.After(after)
	default:
		return time.Time{}, false
	}
	if s.bounded && s.spec.End != nil && dueAt.After(*s.spec.End) {
		return time.Time{}, false
	}
	return dueAt, true
}

// AfterRun returns when a FixedDelay is due whose last run, or whose beginning, was at an
// instant. ok is false when that would be after its End, and for all other kinds.
func (s *Schedule) AfterRun(end time.Time) (dueAt time.Time, ok bool) {
	if s.spec.Kind != FixedDelay {
		return time.Time{}, false
	}
	dueAt = end.Add(s.every)
	if s.spec.Start != nil {
		if start := time.UnixMilli(ceilMillis(*s.spec.Start)); dueAt.Before(start) {
			dueAt = start
		}
	}
	dueAt, ok = s.moved(dueAt)
	return dueAt.UTC(), ok && (s.spec.End == nil || !dueAt.After(*s.spec.End))
}

// nextGrid returns the first point of the grid after an instant, in milliseconds.
func (s *Schedule) nextGrid(after time.Time) (int64, bool) {
	second := after.Unix()
	if second >= afterAll {
		return 0, false
	}
	ms := int64(beforeAll) * 1000
	if second > beforeAll {
		ms = after.UnixMilli()
	}
	past := (ms - s.anchor) % s.gridMs
	if past < 0 {
		past += s.gridMs
	}
	due := ms - past + s.gridMs
	return due, due < afterAll*1000
}

// nextSecond returns the first Unix second after another at which the expression fires.
//
// Within one stretch of constant offset the wall clock runs like any other, so the
// search is one look for the next matching wall time, and a check whether the stretch
// still holds then. Only at a seam between two stretches does the policy speak.
func (s *Schedule) nextSecond(after int64) (int64, bool) {
	if after < beforeAll {
		after = beforeAll
	}
	if after >= afterAll {
		return 0, false
	}
	z := s.zone
	i := z.index(after)
	from := after + 1 + z.offsets[i]
	if s.first && i > 0 {
		// The wall times that the clock was set back over had their turn already.
		from = max(from, z.startsAt[i]+z.offsets[i-1])
	}
	wall := s.cron.next(from)
	for {
		offset := z.offsets[i]
		if i+1 == len(z.offsets) {
			if wall == never {
				return 0, false
			}
			return wall - offset, true
		}
		seam, offsetAfter := z.startsAt[i+1], z.offsets[i+1]
		until := seam + offset
		if s.second {
			until = min(until, seam+offsetAfter)
		}
		if wall < until {
			return wall - offset, true
		}
		shift := offsetAfter - offset
		if s.inGap && shift > 0 && shift <= longestShift && wall < seam+offsetAfter {
			return seam, true
		}
		fromAfter := seam + offsetAfter
		if s.first {
			fromAfter = max(fromAfter, until)
		}
		// wall is still the next one unless the seam went back before the point
		// searched from, or wall is one that the clock jumps over.
		if fromAfter < from || wall < fromAfter {
			wall = s.cron.next(fromAfter)
		}
		from = fromAfter
		i++
	}
}

// Over returns why a schedule has no fire after now, or nil when it has one or is of a
// kind that no clock fires. The sentence names the last possible fire, in the zone of
// the schedule.
func (s *Schedule) Over(now time.Time) *message.Invalid {
	if s.spec.Kind == FixedDelay {
		if _, ok := s.AfterRun(now); ok {
			return nil
		}
		end := s.spec.End.In(s.zone.loc)
		at := end.Format("2006-01-02 15:04:05") + " " + s.spec.Zone
		return refuseField("end", codeOver, end.Format(time.RFC3339), "",
			fmt.Sprintf("The first run would be due after the end, %s; this schedule is over. Write a later end.", at),
			fmt.Sprintf("首次执行将晚于结束时间 %s，该计划已结束。请写更晚的结束时间。", at))
	}
	if !s.isCron && s.gridMs == 0 && s.spec.Kind != Once {
		return nil
	}
	if _, ok := s.Next(now); ok {
		return nil
	}
	if refusal := s.excludesAll(now); refusal != nil {
		return refusal
	}
	field, token := "expr", s.spec.Expr
	switch {
	case s.spec.Kind == Once:
		field, token = "at", s.spec.At.Format(time.RFC3339)
	case s.spec.End != nil:
		field, token = "end", s.spec.End.Format(time.RFC3339)
	}
	last, ok := s.last()
	if !ok {
		return refuseField(field, codeOver, token, "",
			"There is no fire between start and end; this schedule is over.",
			"开始与结束时间之间没有触发时刻，该计划已结束。")
	}
	at := last.In(s.zone.loc).Format("2006-01-02 15:04:05") + " " + s.spec.Zone
	return refuseField(field, codeOver, token, "",
		fmt.Sprintf("The last possible fire was %s; this schedule is over.", at),
		fmt.Sprintf("最后一次可能的触发为 %s，该计划已结束。", at))
}

// last returns the last fire of all. Next succeeds exactly before it, so that halving
// finds it in forty steps.
func (s *Schedule) last() (time.Time, bool) {
	if s.spec.Kind == Once {
		return time.UnixMilli(s.onceMs), true
	}
	low, high := int64(beforeAll)*1000, int64(afterAll)*1000
	if _, ok := s.Next(time.UnixMilli(low)); !ok {
		return time.Time{}, false
	}
	for high-low > 1 {
		middle := low + (high-low)/2
		if _, ok := s.Next(time.UnixMilli(middle)); ok {
			low = middle
		} else {
			high = middle
		}
	}
	return time.UnixMilli(high), true
}
