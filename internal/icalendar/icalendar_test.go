package icalendar_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/icalendar"
	"github.com/ax-scheduler/ax/internal/message"
	"github.com/ax-scheduler/ax/internal/schedule"
)

func text(events ...string) string {
	lines := []string{"BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//test//EN"}
	for _, e := range events {
		lines = append(lines, "BEGIN:VEVENT", "UID:1", "DTSTAMP:20260101T000000Z", "SUMMARY:Feast")
		lines = append(lines, strings.Split(e, "|")...)
		lines = append(lines, "END:VEVENT")
	}
	return strings.Join(append(lines, "END:VCALENDAR", ""), "\r\n")
}

func TestWhatIsTaken(t *testing.T) {
	c, err := icalendar.Read(text(
		"DTSTART;VALUE=DATE:20261001|DTEND;VALUE=DATE:20261008",
		"DTSTART;VALUE=DATE:20260501|DTEND;VALUE=DATE:20260502",
		"DTSTART;VALUE=DATE:20260405",
		"DTSTART;VALUE=DATE:20260101|RRULE:FREQ=YEARLY;INTERVAL=1;BYMONTH=1;BYMONTHDAY=1",
		"DTSTART;VALUE=DATE:20261224|DTEND;VALUE=DATE:20270103|RRULE:FREQ=YEARLY",
		"DTSTART;TZID=Asia/Shanghai:20261130T090000|DTEND;TZID=Asia/Shanghai:20261130T110000",
		"DTSTART:20261130T090000Z|DURATION:PT30M",
		"DTSTART;VALUE=DATE:20260601|STATUS:CANCELLED",
	), nil)
	require.NoError(t, err)
	require.Equal(t, []string{"2026-05-01", "2026-04-05", "01-01"}, c.Dates)
	require.Equal(t, []schedule.DateRange{{From: "2026-10-01", To: "2026-10-07"}, {From: "12-24", To: "01-02"}}, c.Ranges)
	at := func(s string) time.Time {
		v, err := time.Parse(time.RFC3339, s)
		require.NoError(t, err)
		return v
	}
	require.Equal(t, []schedule.Period{{From: at("2026-11-30T01:00:00Z"), To: at("2026-11-30T03:00:00Z")}, {From: at("2026-11-30T09:00:00Z"), To: at("2026-11-30T09:30:00Z")}}, c.Periods)
	require.Nil(t, c.Check())

	loc, err := time.LoadLocation("Asia/Shanghai")
	require.NoError(t, err)
	c, err = icalendar.Read(text("DTSTART:20261130T090000|DTEND:20261130T110000"), loc)
	require.NoError(t, err)
	require.Equal(t, at("2026-11-30T01:00:00Z"), c.Periods[0].From)
}

func TestWhatIsRefusedByName(t *testing.T) {
	for name, c := range map[string]struct{ text, code, part string }{
		"nothing":                    {"", "bad_ics", "VCALENDAR"},
		"no calendar":                {"hello", "bad_ics", ""},
		"half of one":                {"BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\n", "bad_ics", ""},
		"too long":                   {strings.Repeat("x", icalendar.MaxText+1), "too_long", "1 MiB"},
		"a weekly rule":              {text("DTSTART;VALUE=DATE:20260101|RRULE:FREQ=WEEKLY"), "ics_not_supported", "FREQ=WEEKLY"},
		"a rule with an end":         {text("DTSTART;VALUE=DATE:20260101|RRULE:FREQ=YEARLY;COUNT=3"), "ics_not_supported", "COUNT=3"},
		"a rule by weekday":          {text("DTSTART;VALUE=DATE:20261126|RRULE:FREQ=YEARLY;BYMONTH=11;BYDAY=4TH"), "ics_not_supported", "BYDAY=4TH"},
		"a rule of another day":      {text("DTSTART;VALUE=DATE:20261126|RRULE:FREQ=YEARLY;BYMONTHDAY=1"), "ics_not_supported", "BYMONTHDAY=1"},
		"a yearly time":              {text("DTSTART:20261126T090000Z|DTEND:20261126T100000Z|RRULE:FREQ=YEARLY"), "ics_not_supported", "time of day"},
		"exceptions":                 {text("DTSTART;VALUE=DATE:20260101|EXDATE;VALUE=DATE:20270101"), "ics_not_supported", "EXDATE"},
		"more dates":                 {text("DTSTART;VALUE=DATE:20260101|RDATE;VALUE=DATE:20270101"), "ics_not_supported", "RDATE"},
		"a to-do":                    {strings.ReplaceAll(text("DTSTART;VALUE=DATE:20260101"), "VEVENT", "VTODO"), "ics_not_supported", "VTODO"},
		"a time of nobody's zone":    {text("DTSTART:20261130T090000|DTEND:20261130T110000"), "no_zone", "Feast"},
		"a zone that is not known":   {text("DTSTART;TZID=China Standard Time:20261130T090000|DTEND:20261130T110000Z"), "bad_ics", "Feast"},
		"an event without a start":   {text("COMMENT:none"), "bad_ics", "DTSTART"},
		"a date that does not exist": {text("DTSTART;VALUE=DATE:20260230"), "bad_ics", "Feast"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := icalendar.Read(c.text, nil)
			var refusal *message.Invalid
			require.ErrorAs(t, err, &refusal)
			require.Equal(t, c.code, refusal.Code)
			require.Equal(t, "ics", refusal.Field)
			require.Contains(t, refusal.Message.EN, c.part)
			require.NotEmpty(t, refusal.Message.ZH)
		})
	}
}

func FuzzRead(f *testing.F) {
	f.Add(text("DTSTART;VALUE=DATE:20260101|RRULE:FREQ=YEARLY"))
	f.Add(text("DTSTART:20261130T090000Z|DURATION:PT30M"))
	f.Fuzz(func(t *testing.T, s string) {
		if c, err := icalendar.Read(s, time.UTC); err == nil {
			_ = c.Check()
		}
	})
}
