package main

import (
	"fmt"
	"maps"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/server/axtest"
)

type calendar struct {
	Name     string              `json:"name"`
	Dates    []string            `json:"dates"`
	Ranges   []map[string]string `json:"ranges"`
	Periods  []map[string]string `json:"periods"`
	Version  int64               `json:"version"`
	Jobs     int                 `json:"jobs"`
	Weekdays []string            `json:"weekdays"`
}

func put(t *testing.T, ns *axtest.Namespace, name string, def map[string]any) calendar {
	t.Helper()
	a := ns.Client.Do(t, http.MethodPut, ns.Path("/calendars/"+name), def)
	require.Equal(t, http.StatusOK, a.Status, a.Text())
	var c calendar
	a.Into(t, &c)
	return c
}

func TestCalendarsOfANamespace(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		ns, other := s.Namespace(t), s.Namespace(t)
		ns.App("app").Worker(axtest.Succeed)
		refused := func(method, path string, body any, status int, part string) {
			t.Helper()
			a := ns.Client.Do(t, method, ns.Path(path), body)
			require.Equal(t, status, a.Status, a.Text())
			require.Contains(t, a.Text(), part)
		}
		c := put(t, ns, "cn", map[string]any{"dates": []string{"01-01"}, "ranges": []map[string]string{{"from": "2026-10-01", "to": "2026-10-07"}}})
		require.EqualValues(t, 1, c.Version)
		refused(http.MethodPut, "/calendars/cn", map[string]any{}, http.StatusConflict, "exists")
		refused(http.MethodPut, "/calendars/cn", map[string]any{"version": 7}, http.StatusConflict, "stale_version")
		refused(http.MethodPut, "/calendars/none", map[string]any{"version": 1}, http.StatusNotFound, "not_found")
		refused(http.MethodPut, "/calendars/CN", map[string]any{}, http.StatusUnprocessableEntity, "bad_name")
		refused(http.MethodPut, "/calendars/cn", map[string]any{"version": 1, "dates": []string{"2026-02-30"}}, http.StatusUnprocessableEntity, "dates[0]")
		refused(http.MethodPut, "/calendars/cn", map[string]any{"version": 1, "periods": []map[string]string{{"from": "now", "to": "then"}}}, http.StatusUnprocessableEntity, "periods[0].from")
		refused(http.MethodPut, "/calendars/cn", map[string]any{"version": 1, "zone": "CST"}, http.StatusUnprocessableEntity, "ambiguous_zone")

		var days struct{ Days []string }
		ns.Client.Get(t, ns.Path("/calendars/cn/days?year=2026"), &days)
		require.Equal(t, []string{"2026-01-01", "2026-10-01", "2026-10-02", "2026-10-03", "2026-10-04", "2026-10-05", "2026-10-06", "2026-10-07"}, days.Days)

		ics := "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:x\r\nBEGIN:VEVENT\r\nUID:1\r\nDTSTAMP:20260101T000000Z\r\nSUMMARY:May\r\nDTSTART;VALUE=DATE:20260501\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
		for range 2 { // the second time there is nothing new
			a := ns.Client.Do(t, http.MethodPost, ns.Path("/calendars/cn/import"), map[string]any{"ics": ics})
			require.Equal(t, http.StatusOK, a.Status, a.Text())
			a.Into(t, &c)
			require.Equal(t, []string{"01-01", "2026-05-01"}, c.Dates)
		}
		refused(http.MethodPost, "/calendars/cn/import", map[string]any{"ics": "no"}, http.StatusUnprocessableEntity, "bad_ics")
		refused(http.MethodPost, "/calendars/cn/import", map[string]any{"ics": ics, "version": 1}, http.StatusConflict, "stale_version")

		daily := []map[string]any{{"kind": "cron", "expr": "0 0 8 * * ?", "calendars": []string{"cn"}}}
		job := ns.Job(axtest.Def{"name": "uses", "triggers": daily})
		refused(http.MethodPost, "/jobs", axtest.Def{"name": "x", "app": "app", "handler": "work", "triggers": []map[string]any{{"kind": "cron", "expr": "0 0 8 * * ?", "calendars": []string{"cn", "de"}}}}, http.StatusUnprocessableEntity, "triggers[0].calendars[1]")
		a := ns.Client.Do(t, http.MethodPost, ns.Path("/schedule/preview"), map[string]any{"triggers": daily, "from": "2026-09-30T12:00:00+08:00", "count": 1})
		require.Equal(t, http.StatusOK, a.Status, a.Text())
		require.Contains(t, a.Text(), "2026-10-08T08:00:00+08:00")
		require.Contains(t, a.Text(), "left out: 7 before this")
		refused(http.MethodDelete, "/calendars/cn", nil, http.StatusConflict, "uses ("+job+")")

		// Another namespace knows nothing of it.
		require.Equal(t, http.StatusNotFound, other.Client.Do(t, http.MethodGet, other.Path("/calendars/cn"), nil).Status)
		a = other.Client.Do(t, http.MethodPost, other.Path("/schedule/preview"), map[string]any{"triggers": daily})
		require.Equal(t, http.StatusUnprocessableEntity, a.Status, a.Text())

		var list struct{ Items []calendar }
		ns.Client.Get(t, ns.Path("/calendars"), &list)
		require.Len(t, list.Items, 1)
		require.Equal(t, 1, list.Items[0].Jobs)
		a = ns.Client.Do(t, http.MethodDelete, ns.Path("/jobs/"+job), nil)
		require.Equal(t, http.StatusNoContent, a.Status, a.Text())
		a = ns.Client.Do(t, http.MethodDelete, ns.Path("/calendars/cn"), nil)
		require.Equal(t, http.StatusNoContent, a.Status, a.Text())
		refused(http.MethodGet, "/calendars/cn", nil, http.StatusNotFound, "not_found")
	})
}

// What a calendar covers does not happen, from the edit on that says so; all else does, once each. The jobs
// get new versions, also one that is switched off.
func TestAnEditOfACalendarReachesItsJobs(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		ns := s.Namespace(t)
		x := ns.App("app").Worker(axtest.Succeed)
		c := put(t, ns, "pauses", map[string]any{})
		heeds := func(more map[string]any) []map[string]any {
			t := map[string]any{"kind": "fixedRate", "every": "500ms", "calendars": []string{"pauses"}}
			maps.Copy(t, more)
			return []map[string]any{t}
		}
		job := ns.Job(axtest.Def{"name": "beat", "triggers": heeds(nil), "concurrency": policy("allow", 0)})
		spread := ns.Job(axtest.Def{"name": "spread", "triggers": heeds(map[string]any{"jitter": "300ms"}), "concurrency": policy("allow", 0)})
		delay := ns.Job(axtest.Def{"name": "delay", "triggers": []map[string]any{{"kind": "fixedDelay", "every": "500ms", "calendars": []string{"pauses"}}}})
		off := ns.Job(axtest.Def{"name": "off", "triggers": heeds(nil), "enabled": false})
		plain := ns.Job(axtest.Def{"name": "plain", "triggers": every("500ms"), "concurrency": policy("allow", 0)})
		axtest.WaitFor(t, "all fire", func() bool {
			return len(ns.Batches(job)) > 2 && len(ns.Batches(spread)) > 2 && len(ns.Batches(delay)) > 1
		})
		// The edit must be taken before the pause begins: on a busy machine it needs more than one try.
		var from, to time.Time
		var edits int64
		for lead := 2 * time.Second; edits == 0 || !time.Now().Before(from); lead *= 2 {
			from = time.Now().Add(lead).Truncate(time.Second)
			to = from.Add(4 * time.Second)
			c = put(t, ns, "pauses", map[string]any{"version": c.Version, "periods": []map[string]any{{"from": from.Format(time.RFC3339), "to": to.Format(time.RFC3339)}}})
			edits++
		}
		require.Equal(t, 4, c.Jobs)
		require.Equal(t, 1+edits, ns.JobView(job).Version)
		require.Equal(t, 1+edits, ns.JobView(off).Version)
		require.EqualValues(t, 1, ns.JobView(plain).Version)
		axtest.WaitFor(t, "all fire again", func() bool {
			for _, id := range []string{job, spread, delay} {
				later := 0
				for _, b := range ns.Batches(id) {
					if b.DueAt.After(to) && b.State == "SUCCEEDED" {
						later++
					}
				}
				if later < 2 {
					return false
				}
			}
			return true
		})
		for _, id := range []string{job, spread, delay} {
			before := 0
			for _, b := range ns.Batches(id) {
				require.False(t, !b.DueAt.Before(from) && b.DueAt.Before(to), "%s is due in the pause", b.BatchID)
				if b.DueAt.Before(from) {
					before++
				}
			}
			require.NotZero(t, before)
		}
		inside := 0
		for _, b := range ns.Batches(plain) {
			if !b.DueAt.Before(from) && b.DueAt.Before(to) {
				inside++
			}
		}
		require.Equal(t, 8, inside, "who names no calendar goes on")
		require.Empty(t, ns.Batches(off))
		entries := s.Audit(t, "action=calendar.write")
		require.NotEmpty(t, entries)
		axtest.NothingTwice(t, x)
		s.LedgerClean(t)
	})
}

// Calendar and jobs are edited at once, as fast as it goes, while all of them fire: each firing has one fate.
func TestEditsOfCalendarAndJobsMeet(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		ns := s.Namespace(t)
		x := ns.App("app").Worker(axtest.Succeed)
		c := put(t, ns, "busy", map[string]any{})
		def := func(i int) axtest.Def {
			return axtest.Def{"name": fmt.Sprint("job ", i), "app": "app", "handler": "work", "concurrency": policy("allow", 0), "triggers": []map[string]any{{"kind": "fixedRate", "every": "300ms", "calendars": []string{"busy"}}}}
		}
		var jobs []string
		for i := range 8 {
			jobs = append(jobs, ns.Job(def(i)))
		}
		until := time.Now().Add(6 * time.Second)
		var edits sync.WaitGroup
		changes := 0
		edits.Go(func() {
			for n := 0; time.Now().Before(until); n++ {
				d := def(n % len(jobs))
				d["version"] = ns.JobView(jobs[n%len(jobs)]).Version
				a := ns.Client.Do(t, http.MethodPut, ns.Path("/jobs/"+jobs[n%len(jobs)]), d)
				if a.Status != http.StatusOK && a.Status != http.StatusConflict {
					t.Errorf("%d %s", a.Status, a.Text())
				}
			}
		})
		for n := 0; time.Now().Before(until) || changes < 2 && time.Now().Before(until.Add(axtest.Patience)); n++ {
			d := map[string]any{"version": c.Version}
			if n%2 == 0 {
				at := time.Now().Add(100 * time.Millisecond)
				d["periods"] = []map[string]any{{"from": at.Format(time.RFC3339Nano), "to": at.Add(time.Second).Format(time.RFC3339Nano)}}
			}
			a := ns.Client.Do(t, http.MethodPut, ns.Path("/calendars/busy"), d)
			if a.Status == http.StatusOK {
				a.Into(t, &c)
				changes++
				continue
			}
			require.Equal(t, http.StatusConflict, a.Status, a.Text())
		}
		edits.Wait()
		require.GreaterOrEqual(t, changes, 2)
		for _, id := range jobs {
			n := len(ns.Batches(id))
			axtest.WaitFor(t, "it goes on", func() bool { return len(ns.Batches(id)) > n })
		}
		axtest.NothingTwice(t, x)
		s.LedgerClean(t)
	})
}
