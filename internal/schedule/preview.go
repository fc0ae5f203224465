package schedule

import (
	"fmt"
	"time"

	"github.com/ax-scheduler/ax/internal/message"
)

// Fire is one future firing, for people to look at.
type Fire struct {
	At      time.Time     `json:"at"`      // in the trigger's zone, so that its offset shows
	Trigger int           `json:"trigger"` // the trigger's No, or its place in the list from 1 on
	Note    *message.Text `json:"note,omitempty"`
}

// TriggerWarning is a warning about one of several triggers, numbered as in Fire.
type TriggerWarning struct {
	Trigger int `json:"trigger"`
	Warning
}

// Preview lists the next count fires of several triggers after from, in order of time;
// what is due at one instant comes in the order of the triggers. A trigger @every
// without an anchor or a start counts from from. The list is shorter when the fires end.
//
// job is the job that the triggers are of, 0 when there is none yet: what jitter makes of a fire is told
// to the instant for a trigger that has a job and a number.
//
// The error is the first refusal, a *message.Invalid whose Field starts with
// "triggers[i]."; when nothing fires after from at all, it is that of Over. A trigger
// that is over beside others that are not is a warning.
func Preview(job int64, specs []Spec, from time.Time, count int) ([]Fire, []TriggerWarning, error) {
	type source struct {
		*Schedule
		number int
		before time.Time // from or the fire before
		dueAt  time.Time
		ok     bool
	}
	var warnings []TriggerWarning
	var over *message.Invalid
	sources := make([]source, len(specs))
	alive := false
	for i, spec := range specs {
		s, refusal := compile(spec)
		if refusal != nil {
			refusal.Field = fmt.Sprintf("triggers[%d].%s", i, refusal.Field)
			return nil, nil, refusal
		}
		if s.spec.Kind == Cron && s.gridMs > 0 && spec.Anchor == nil && spec.Start == nil {
			s.spec.Anchor = &from
			s.setAnchor()
		}
		src := source{Schedule: s, number: spec.No}
		if src.number == 0 {
			src.number = i + 1
		}
		if refusal := s.Over(from); refusal != nil {
			if over == nil {
				copied := *refusal
				copied.Field = fmt.Sprintf("triggers[%d].%s", i, refusal.Field)
				over = &copied
			}
			warnings = append(warnings, TriggerWarning{src.number, Warning{warnOver, refusal.Message}})
		}
		for _, w := range s.Warnings(from) {
			warnings = append(warnings, TriggerWarning{src.number, w})
		}
		src.before = from
		src.dueAt, src.ok = s.Next(from)
		alive = alive || src.ok
		sources[i] = src
	}
	if !alive && over != nil {
		return nil, nil, over
	}
	var fires []Fire
	for len(fires) < count {
		first := -1
		for i := range sources {
			if sources[i].ok && (first < 0 || sources[i].dueAt.Before(sources[first].dueAt)) {
				first = i
			}
		}
		if first < 0 {
			break
		}
		src := &sources[first]
		fires = append(fires, Fire{At: src.dueAt.In(src.zone.loc), Trigger: src.number, Note: both(src.gap(src.before, src.dueAt), both(src.note(src.dueAt), src.spread(job, src.spec.No, src.dueAt)))})
		src.before = src.dueAt
		src.dueAt, src.ok = src.Next(src.dueAt)
	}
	return fires, warnings, nil
}

// both joins two notes, of which each may be nil.
func both(a, b *message.Text) *message.Text {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	return &message.Text{EN: a.EN + "; " + b.EN, ZH: a.ZH + "；" + b.ZH}
}

// note tells what a clock change has to do with a fire, or is nil.
func (s *Schedule) note(dueAt time.Time) *message.Text {
	if !s.isCron {
		return nil
	}
	z, due := s.zone, dueAt.Unix()
	i := z.index(due)
	wall := due + z.offsets[i]
	seamAt := func(i int) *message.Text {
		note, ok := s.noteAt(i)
		if !ok {
			return nil
		}
		gap := z.offsets[i] > z.offsets[i-1]
		if !gap {
			note.what.EN = wallClock(wall) + " happens twice"
			note.what.ZH = wallClock(wall) + " 出现两次"
		}
		return &message.Text{
			EN: fmt.Sprintf("%s on this day; %s (policy: %s)", note.what.EN, note.then.EN, note.policy.EN),
			ZH: fmt.Sprintf("当日%s，%s（策略：%s）", note.what.ZH, note.then.ZH, note.policy.ZH),
		}
	}
	if i > 0 && z.startsAt[i] == due && z.offsets[i] > z.offsets[i-1] && s.inGap {
		return seamAt(i)
	}
	if i > 0 && wall < z.startsAt[i]+z.offsets[i-1] {
		if !s.cron.fixed && !s.second {
			return &message.Text{
				EN: wallClock(wall) + " for the second time on this day: the clock went back",
				ZH: "当日第二次 " + wallClock(wall) + "：时钟回拨",
			}
		}
		return seamAt(i)
	}
	if i+1 < len(z.offsets) && s.cron.fixed && wall >= z.startsAt[i+1]+z.offsets[i+1] {
		return seamAt(i + 1)
	}
	return nil
}
