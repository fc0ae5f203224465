// Package icalendar reads the days and times of an iCalendar text (RFC 5545) into a calendar of
// package schedule. What it can not say there, it refuses by name: a holiday that is silently not
// left out is worse than a text that is not taken.
package icalendar

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/emersion/go-ical"

	"github.com/ax-scheduler/ax/internal/message"
	"github.com/ax-scheduler/ax/internal/schedule"
)

// MaxText is the longest text that is read, in bytes.
const MaxText = 1 << 20

const field = "ics"

// Read returns the events of a text as dates, ranges and periods. Events that were cancelled are left
// out. loc is whose clock a time without a zone means; nil refuses such a time. The error is a *message.Invalid.
func Read(text string, loc *time.Location) (c schedule.Calendar, err error) {
	if len(text) > MaxText {
		return c, refuse("too_long", strconv.Itoa(len(text)), "The text is longer than 1 MiB; take fewer years.", "文本超过 1 MiB，请减少年份。")
	}
	decoder := ical.NewDecoder(strings.NewReader(text))
	found := false
	for {
		part, err := decoder.Decode()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return c, refuse("bad_ics", "", "This is no iCalendar text: "+err.Error()+".", "不是有效的 iCalendar 文本："+err.Error()+"。")
		}
		found = true
		for _, child := range part.Children {
			switch child.Name {
			case ical.CompTimezone:
			case ical.CompEvent:
				if err := read(&c, ical.Event{Component: child}, loc); err != nil {
					return c, err
				}
			default:
				return c, unsupported(child.Name, child.Name)
			}
		}
	}
	if !found {
		return c, refuse("bad_ics", "", "There is no VCALENDAR in the text.", "文本中没有 VCALENDAR。")
	}
	return c, nil
}

func read(c *schedule.Calendar, e ical.Event, loc *time.Location) error {
	name := "VEVENT"
	if p := e.Props.Get(ical.PropSummary); p != nil {
		name = p.Value
	}
	if status, err := e.Status(); err == nil && status == ical.EventCancelled {
		return nil
	}
	for _, p := range []string{ical.PropRecurrenceDates, ical.PropExceptionDates, ical.PropRecurrenceID, "EXRULE"} {
		if e.Props.Get(p) != nil {
			return unsupported(name, p)
		}
	}
	start := e.Props.Get(ical.PropDateTimeStart)
	if start == nil {
		return refuse("bad_ics", name, fmt.Sprintf("Event %q has no DTSTART.", name), fmt.Sprintf("事件 “%s” 没有 DTSTART。", name))
	}
	if start.ValueType() != ical.ValueDate {
		return period(c, e, name, loc)
	}
	first, err := e.DateTimeStart(time.UTC)
	if err != nil {
		return unreadable(name, err)
	}
	end := first.AddDate(0, 0, 1)
	if e.Props.Get(ical.PropDateTimeEnd) != nil || e.Props.Get(ical.PropDuration) != nil {
		if end, err = e.DateTimeEnd(time.UTC); err != nil {
			return unreadable(name, err)
		}
	}
	last := end.AddDate(0, 0, -1)
	if last.Before(first) {
		last = first // some programs write the same day twice
	}
	form := time.DateOnly
	if rule := e.Props.Get(ical.PropRecurrenceRule); rule != nil {
		if part := notYearly(rule.Value, first); part != "" {
			return unsupported(name, part)
		}
		form = "01-02"
	}
	if first.Equal(last) {
		c.Dates = append(c.Dates, first.Format(form))
	} else {
		c.Ranges = append(c.Ranges, schedule.DateRange{From: first.Format(form), To: last.Format(form)})
	}
	return nil
}

// notYearly returns the part of a rule that says more than "each year on the day of first", or "".
func notYearly(rule string, first time.Time) string {
	yearly := false
	for part := range strings.SplitSeq(rule, ";") {
		switch strings.ToUpper(part) {
		case "FREQ=YEARLY":
			yearly = true
		case "INTERVAL=1", "BYMONTH=" + strconv.Itoa(int(first.Month())), "BYMONTHDAY=" + strconv.Itoa(first.Day()), "":
		default:
			if !strings.HasPrefix(strings.ToUpper(part), "WKST=") {
				return "RRULE " + part
			}
		}
	}
	if !yearly {
		return "RRULE " + rule
	}
	return ""
}

func period(c *schedule.Calendar, e ical.Event, name string, loc *time.Location) error {
	if e.Props.Get(ical.PropRecurrenceRule) != nil {
		return unsupported(name, "RRULE of an event with a time of day")
	}
	if loc == nil {
		for _, key := range []string{ical.PropDateTimeStart, ical.PropDateTimeEnd} {
			if p := e.Props.Get(key); p != nil && p.Params.Get(ical.ParamTimezoneID) == "" && !strings.HasSuffix(p.Value, "Z") {
				return refuse("no_zone", p.Value, fmt.Sprintf("Event %q has a time without a zone; give the calendar a zone first.", name), fmt.Sprintf("事件 “%s” 的时间没有时区；请先为日历设置时区。", name))
			}
		}
	}
	from, err := e.DateTimeStart(loc)
	if err != nil {
		return unreadable(name, err)
	}
	to, err := e.DateTimeEnd(loc)
	if err != nil {
		return unreadable(name, err)
	}
	if !to.After(from) {
		return nil // a moment: nothing is left out
	}
	c.Periods = append(c.Periods, schedule.Period{From: from.UTC(), To: to.UTC()})
	return nil
}

func refuse(code, token, en, zh string) *message.Invalid {
	return &message.Invalid{Code: code, Field: field, Token: token, Message: message.Text{EN: en, ZH: zh}}
}

func unreadable(name string, err error) *message.Invalid {
	return refuse("bad_ics", name, fmt.Sprintf("Event %q is not understood: %s.", name, err), fmt.Sprintf("无法理解事件 “%s”：%s。", name, err))
}

func unsupported(name, part string) *message.Invalid {
	return refuse("ics_not_supported", part, fmt.Sprintf("%s in %q can not be taken over; nothing was. All-day and timed events and all-day events of each year can. Take it out, or write its days as dates.", part, name),
		fmt.Sprintf("无法导入 “%[2]s” 中的 %[1]s，未做任何修改。支持全天事件、定时事件和每年重复的全天事件；请将其移除或写成日期。", part, name))
}
