package main

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/server/axtest"
)

type keyList struct {
	Items []struct {
		ID    string
		Valid bool
	}
}

// EXE-4, T-EXE-5: keys change under traffic and nothing is refused; two are valid at a time, and what is revoked is over.
func TestKeysAreRotatedUnderTraffic(t *testing.T) {
	axtest.Both(t, func(t *testing.T, o ...axtest.Option) {
		s := axtest.Start(t, o...)
		ns := s.Namespace(t)
		app := ns.App("app")
		old := app.Worker(axtest.Succeed)
		job := ns.Job(axtest.Def{"triggers": every("1s"), "concurrency": policy("allow", 0), "retry": map[string]any{"max": 0}})
		keys := ns.Path("/apps/app/keys")
		rotate := func(overlap string) string {
			t.Helper()
			a := ns.Client.Do(t, http.MethodPost, keys, map[string]any{"overlap": overlap})
			require.Equal(t, http.StatusCreated, a.Status, a.Text())
			var v struct{ Key string }
			a.Into(t, &v)
			return v.Key
		}
		list := func() (v keyList) {
			ns.Client.Get(t, keys, &v)
			return v
		}
		axtest.WaitFor(t, "work comes", func() bool { return len(old.Starts()) >= 2 })
		fresh := app.WithKey(rotate("1h")).Worker(axtest.Succeed)
		axtest.WaitFor(t, "both work", func() bool { return len(fresh.Starts()) >= 2 })
		n := len(old.Starts())
		axtest.WaitFor(t, "the old one still does", func() bool { return len(old.Starts()) > n })
		for _, b := range ns.Batches(job) {
			if b.Final() {
				require.Equal(t, "SUCCEEDED", b.State)
			}
		}
		require.Equal(t, "overlap", ns.Client.Do(t, http.MethodPost, keys, map[string]any{"overlap": "-1s"}).Problem(t).Errors[0].Field)

		// Revoked: what is signed with it is refused, and the other goes on.
		was := list()
		require.Len(t, was.Items, 2)
		require.Equal(t, http.StatusNoContent, ns.Client.Do(t, http.MethodDelete, keys+"/"+was.Items[1].ID, nil).Status)
		require.Equal(t, http.StatusNotFound, ns.Client.Do(t, http.MethodDelete, keys+"/"+was.Items[1].ID, nil).Status, "it has ended")
		require.Equal(t, "last_key", ns.Client.Do(t, http.MethodDelete, keys+"/"+was.Items[0].ID, nil).Problem(t).Code)
		axtest.WaitFor(t, "what it signs is refused", func() bool {
			status, _ := old.Post("/ax/registry", old.Registration())
			return status == http.StatusUnauthorized
		})
		n = len(fresh.Starts())
		axtest.WaitFor(t, "the other goes on", func() bool { return len(fresh.Starts()) > n+1 })

		// Never more than two are valid.
		rotate("1h")
		last := rotate("1h")
		valid := 0
		for _, k := range list().Items {
			if k.Valid {
				valid++
			}
		}
		require.Equal(t, 2, valid)
		newest := app.WithKey(last).Worker(axtest.Succeed)
		axtest.WaitUpTo(t, 2*axtest.Patience, "the newest works", func() bool { return len(newest.Starts()) > 0 })
		// At once.
		rotate("0s")
		axtest.WaitFor(t, "the one before is over", func() bool {
			status, _ := newest.Post("/ax/registry", newest.Registration())
			return status == http.StatusUnauthorized
		})
	})
}
