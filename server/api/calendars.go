package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/ax-scheduler/ax/internal/auth"
	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/icalendar"
	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/message"
	"github.com/ax-scheduler/ax/internal/schedule"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/server/httpx"
)

type periodBody struct {
	From string `json:"from" doc:"an instant, RFC 3339"`
	To   string `json:"to" doc:"not included"`
}

// CalendarBody is the part of a calendar that somebody writes.
type CalendarBody struct {
	Zone     string               `json:"zone,omitempty" maxLength:"64" doc:"whose days and hours are meant; empty = the zone of each trigger"`
	Dates    []string             `json:"dates,omitempty" maxItems:"500" doc:"whole days: 2026-10-01, or 10-01 for each year"`
	Ranges   []schedule.DateRange `json:"ranges,omitempty" maxItems:"500" doc:"days in a row, both ends included"`
	Weekdays []string             `json:"weekdays,omitempty" maxItems:"7" doc:"SUN to SAT"`
	Times    []schedule.TimeRange `json:"times,omitempty" maxItems:"500" doc:"hours of each day, the end not included; 22:00 to 06:00 goes over midnight"`
	Periods  []periodBody         `json:"periods,omitempty" maxItems:"500" doc:"stretches of time, whatever the zone"`
}

type calendarView struct {
	Name string `json:"name"`
	CalendarBody
	Version   int64  `json:"version"`
	Jobs      int    `json:"jobs" doc:"how many use it"`
	UpdatedAt string `json:"updatedAt"`
	UpdatedBy string `json:"updatedBy"`
}

type daysView struct {
	Year int      `json:"year"`
	Days []string `json:"days" doc:"days that are left out as a whole"`
}

type calendarListInput struct {
	NamespacePath
	Page
}

// CalendarPath is a calendar of a namespace.
type CalendarPath struct {
	NamespacePath
	Name string `path:"name" maxLength:"64"`
}

type putCalendarInput struct {
	CalendarPath
	Body struct {
		CalendarBody
		Version int64 `json:"version,omitempty" minimum:"0" doc:"the version that was read; 0 makes a new calendar"`
	}
}

type deleteCalendarInput struct {
	CalendarPath
	Version int64 `query:"version" doc:"the version that was read; 0 = whatever it is"`
}

type importCalendarInput struct {
	CalendarPath
	Body struct {
		ICS     string `json:"ics" doc:"an iCalendar text of at most 1 MiB: all-day and timed events, and all-day events of each year"`
		Version int64  `json:"version,omitempty" doc:"the version that was read; 0 = whatever it is"`
	}
}

type daysInput struct {
	CalendarPath
	Year int `query:"year" required:"true" minimum:"1970" maximum:"2199"`
}

func (a *API) calendars() {
	const calendars = "/api/v1/namespaces/{namespace}/calendars"
	read, write := inNamespace(auth.CalendarRead), inNamespace(auth.CalendarWrite)
	add(a, http.MethodGet, calendars, "listCalendars", "Calendars of a namespace", read, a.listCalendars)
	add(a, http.MethodGet, calendars+"/{name}", "getCalendar", "One calendar", read, a.getCalendar)
	add(a, http.MethodPut, calendars+"/{name}", "putCalendar", "Make or replace a calendar; the jobs that use it follow at once", write, a.putCalendar)
	add(a, http.MethodDelete, calendars+"/{name}", "deleteCalendar", "Delete a calendar that no job uses", write, a.deleteCalendar, func(op *huma.Operation) { op.DefaultStatus = http.StatusNoContent })
	add(a, http.MethodPost, calendars+"/{name}/import", "importCalendar", "Add the events of an iCalendar text to a calendar", write, a.importCalendar, func(op *huma.Operation) { op.MaxBodyBytes = 2*icalendar.MaxText + maxBody })
	add(a, http.MethodGet, calendars+"/{name}/days", "calendarDays", "The days of a year that a calendar leaves out", read, a.calendarDays)
}

func calendarOf(c store.Calendar) calendarView {
	d := c.Definition
	v := calendarView{
		Name: d.Name, Version: d.Version, Jobs: c.Jobs, UpdatedAt: stamp(c.UpdatedAt), UpdatedBy: c.UpdatedBy,
		CalendarBody: CalendarBody{Zone: d.Zone, Dates: d.Dates, Ranges: d.Ranges, Weekdays: d.Weekdays, Times: d.Times},
	}
	for _, p := range d.Periods {
		v.Periods = append(v.Periods, periodBody{p.From.Format(time.RFC3339), p.To.Format(time.RFC3339)})
	}
	return v
}

// toldCalendar is what the audit keeps of a calendar.
func toldCalendar(c store.Calendar) any { return calendarOf(c).CalendarBody }

func (a *API) listCalendars(ctx context.Context, in *calendarListInput) (*body[list[calendarView]], error) {
	after := ""
	if err := openCursor(ctx, in.Cursor, &after); err != nil {
		return nil, err
	}
	all, err := a.Store.Calendars(ctx, nsOf(ctx).ID, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	out := list[calendarView]{Items: []calendarView{}}
	if len(all) > in.Limit {
		all = all[:in.Limit]
		out.NextCursor = cursor(all[len(all)-1].Definition.Name)
	}
	for _, c := range all {
		out.Items = append(out.Items, calendarOf(c))
	}
	return &body[list[calendarView]]{out}, nil
}

// calendar reads the calendar of a path; a text that can be no name is not looked up.
func (a *API) calendar(ctx context.Context, name string) (store.Calendar, error) {
	if job.ValidName("name", name) != nil {
		return store.Calendar{}, store.ErrNotFound
	}
	return a.Store.Calendar(ctx, nsOf(ctx).ID, name)
}

func (a *API) shownCalendar(ctx context.Context, name string) (*body[calendarView], error) {
	c, err := a.calendar(ctx, name)
	if err != nil {
		return nil, err
	}
	return &body[calendarView]{calendarOf(c)}, nil
}

func (a *API) getCalendar(ctx context.Context, in *CalendarPath) (*body[calendarView], error) {
	return a.shownCalendar(ctx, in.Name)
}

func (a *API) calendarDays(ctx context.Context, in *daysInput) (*body[daysView], error) {
	c, err := a.calendar(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	days, err := c.Definition.Days(in.Year)
	if err != nil {
		return nil, err
	}
	return &body[daysView]{daysView{in.Year, days}}, nil
}

func (a *API) putCalendar(ctx context.Context, in *putCalendarInput) (*body[calendarView], error) {
	if bad := job.ValidName("name", in.Name); bad != nil {
		return nil, bad
	}
	b := in.Body
	d := schedule.Calendar{Name: in.Name, Zone: strings.TrimSpace(b.Zone), Dates: b.Dates, Ranges: b.Ranges, Weekdays: b.Weekdays, Times: b.Times}
	r := &reader{}
	for i, p := range b.Periods {
		from, to := r.time(fmt.Sprintf("periods[%d].from", i), p.From), r.time(fmt.Sprintf("periods[%d].to", i), p.To)
		if from != nil && to != nil {
			d.Periods = append(d.Periods, schedule.Period{From: *from, To: *to})
		}
	}
	if len(r.bad) > 0 {
		return nil, &job.InvalidError{Fields: r.bad}
	}
	var old *store.Calendar
	if b.Version > 0 {
		c, err := a.calendar(ctx, in.Name)
		if err != nil {
			return nil, err
		}
		old = &c
	}
	return a.writeCalendar(ctx, old, d, b.Version)
}

func (a *API) importCalendar(ctx context.Context, in *importCalendarInput) (*body[calendarView], error) {
	c, err := a.calendar(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	if in.Body.Version != 0 && in.Body.Version != c.Definition.Version {
		return nil, store.ErrStale
	}
	var loc *time.Location
	if c.Definition.Zone != "" {
		if loc, err = schedule.ParseZone(c.Definition.Zone); err != nil {
			return nil, err
		}
	}
	got, err := icalendar.Read(in.Body.ICS, loc)
	if err != nil {
		return nil, err
	}
	d := c.Definition
	d.Dates, d.Ranges, d.Periods = joined(d.Dates, got.Dates), joined(d.Ranges, got.Ranges), slices.Clone(d.Periods)
	for _, p := range got.Periods {
		if !slices.ContainsFunc(d.Periods, func(o schedule.Period) bool { return o.From.Equal(p.From) && o.To.Equal(p.To) }) {
			d.Periods = append(d.Periods, p)
		}
	}
	return a.writeCalendar(ctx, &c, d, c.Definition.Version)
}

// joined is a list with what it did not have.
func joined[T comparable](list, more []T) []T {
	out := slices.Clone(list)
	for _, v := range more {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// rewriteTries is how often a calendar is written again when a job that uses it was changed in between.
const rewriteTries = 10

// writeCalendar makes a calendar (old is nil) or replaces one, and with it the triggers that use it.
func (a *API) writeCalendar(ctx context.Context, old *store.Calendar, d schedule.Calendar, from int64) (*body[calendarView], error) {
	if bad := d.Check(); bad != nil {
		return nil, bad
	}
	if old != nil && old.Definition.Version != from {
		return nil, store.ErrStale
	}
	done, err := a.editing(ctx, nsOf(ctx).Bucket)
	if err != nil {
		return nil, err
	}
	defer done()
	for try := 1; ; try++ {
		err := a.tryCalendar(ctx, old, d, from)
		if errors.Is(err, store.ErrStale) && old != nil && try < rewriteTries {
			// It is the calendar that is stale, or one of its jobs; the latter is no business of the caller's.
			if now, err := a.calendar(ctx, d.Name); err == nil && now.Definition.Version == from {
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		return a.shownCalendar(ctx, d.Name)
	}
}

func (a *API) tryCalendar(ctx context.Context, old *store.Calendar, d schedule.Calendar, from int64) error {
	ns := nsOf(ctx)
	now := clock.Millis(a.Clock)
	by := httpx.CallerOf(ctx).Principal.Name
	d.Version = from + 1
	c := store.Calendar{NS: ns.ID, Definition: d, UpdatedAt: now, UpdatedBy: by}
	var before any
	var users []int64
	if old != nil {
		before = toldCalendar(*old)
		var err error
		if users, err = a.Store.CalendarUsers(ctx, ns.ID, d.Name); err != nil {
			return err
		}
	}
	entry, err := a.entry(ctx, auth.CalendarWrite, "calendar", 0, d.Name, before, toldCalendar(c))
	if err != nil {
		return err
	}
	entry.ObjectID = d.Name
	edits := make([]edit, 0, len(users))
	for _, id := range users {
		e, err := a.heed(ctx, id, d, now)
		if err != nil {
			return err
		}
		edits = append(edits, e)
	}
	return a.rewrite(ctx, ns.Bucket, now, edits, func(b *store.Bucket) error {
		if err := b.WriteCalendar(&c, from, entry); err != nil {
			return err
		}
		is, err := b.CalendarUsers(ns.ID, d.Name)
		if err != nil {
			return err
		}
		if !slices.Equal(is, users) {
			return store.ErrStale // somebody began or ceased to use it
		}
		return nil
	})
}

// heed is the edit that gives a job the new content of a calendar.
func (a *API) heed(ctx context.Context, jobID int64, d schedule.Calendar, now int64) (edit, error) {
	j, err := a.Store.Job(ctx, nsOf(ctx).ID, jobID)
	if errors.Is(err, store.ErrNotFound) {
		err = store.ErrStale // deleted since the users were read
	}
	if err != nil {
		return edit{}, err
	}
	var was int64
	for i := range j.Definition.Triggers {
		for k := range j.Definition.Triggers[i].Excluded {
			if x := &j.Definition.Triggers[i].Excluded[k]; x.Name == d.Name {
				was, *x = x.Version, d
			}
		}
	}
	type heeds struct {
		Calendar string `json:"calendar"`
		Version  int64  `json:"version"`
	}
	entry, err := a.entry(ctx, auth.CalendarWrite, "job", j.ID, j.Definition.Name, heeds{d.Name, was}, heeds{d.Name, d.Version})
	if err != nil {
		return edit{}, err
	}
	from := j.Version
	j.UpdatedAt, j.UpdatedBy = now, httpx.CallerOf(ctx).Principal.Name
	return edit{&j, from, entry}, nil
}

// maxNamed bounds the jobs that a refusal names.
const maxNamed = 10

func (a *API) deleteCalendar(ctx context.Context, in *deleteCalendarInput) (*empty, error) {
	c, err := a.calendar(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	if in.Version != 0 && in.Version != c.Definition.Version {
		return nil, store.ErrStale
	}
	entry, err := a.entry(ctx, auth.CalendarWrite, "calendar", 0, in.Name, toldCalendar(c), nil)
	if err != nil {
		return nil, err
	}
	entry.ObjectID = in.Name
	var users []int64
	err = a.inBucket(ctx, nsOf(ctx).Bucket, func(b *store.Bucket) error {
		var err error
		if users, err = b.CalendarUsers(c.NS, in.Name); err != nil || len(users) > 0 {
			return err
		}
		return b.DeleteCalendar(c.NS, in.Name, c.Definition.Version, entry)
	})
	if err != nil || len(users) == 0 {
		return nil, err
	}
	names := a.jobNames(ctx, c.NS, users)
	return nil, httpx.NewProblem(ctx, http.StatusConflict, "calendar_in_use", message.Text{
		EN: fmt.Sprintf("%d jobs use this calendar; take it out of their triggers first: %s.", len(users), strings.Join(names, ", ")),
		ZH: fmt.Sprintf("有 %d 个任务使用此日历，请先从其触发器中移除：%s。", len(users), strings.Join(names, "、")),
	})
}

// resolve gives triggers the calendars that they name, as they are in force now. One that is not there is left
// empty, and the trigger is refused when it is compiled.
func (a *API) resolve(ctx context.Context, triggers []schedule.Spec) error {
	known := map[string]schedule.Calendar{}
	for i := range triggers {
		t := &triggers[i]
		for _, name := range t.Calendars {
			d, ok := known[name]
			if !ok {
				c, err := a.calendar(ctx, name)
				if err != nil && !errors.Is(err, store.ErrNotFound) {
					return err
				}
				d = c.Definition
				known[name] = d
			}
			t.Excluded = append(t.Excluded, d)
		}
	}
	return nil
}
