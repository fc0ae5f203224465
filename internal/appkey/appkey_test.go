package appkey_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/appkey"
	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/protocol"
	"github.com/ax-scheduler/ax/internal/seal"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/internal/storetest"
)

func TestKeys(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		sealer, _, err := seal.LoadOrCreate(t.TempDir() + "/master.key")
		require.NoError(t, err)
		const now = int64(1_796_000_000_000)
		ring := appkey.New(s, sealer, clock.NewManual(time.UnixMilli(now)))
		entry := func() *store.AuditEntry {
			return &store.AuditEntry{At: now, ActorType: "system", Action: "test", ObjectType: "test", Outcome: "success"}
		}
		keys := map[string]protocol.Key{}
		ids := map[string]int64{}
		spaces := map[string]int64{}
		sealedA := ""
		for _, name := range []string{"a", "b"} {
			ns := store.Namespace{Name: name, DisplayName: name, Egress: `["10.0.0.0/8:80"]`, CreatedAt: now}
			require.NoError(t, s.CreateNamespace(ctx, &ns, entry()))
			app := store.App{NSID: ns.ID, Name: "app", Protocol: "ax", CreatedAt: now}
			key, _ := protocol.NewKey()
			require.NoError(t, s.CreateApp(ctx, &app, func(id int64) (string, error) {
				sealed, err := ring.Seal(ns.ID, id, key)
				require.NotContains(t, sealed, key.Text()[4:])
				if name == "a" {
					sealedA = sealed
				}
				return sealed, err
			}, entry()))
			keys[name], ids[name], spaces[name] = key, app.ID, ns.ID
		}
		for _, name := range []string{"a", "b", "a"} {
			e, err := ring.ByName(ctx, name, "app")
			require.NoError(t, err)
			require.Equal(t, []protocol.Key{keys[name]}, e.Keys)
			require.Len(t, e.Rules, 1)
			space, byID, rules, err := ring.ByID(ctx, spaces[name], ids[name])
			require.NoError(t, err)
			require.Equal(t, name, space)
			require.Equal(t, e.Keys, byID)
			require.Equal(t, e.Rules, rules)
		}
		for _, unknown := range [][2]string{{"a", "other"}, {"other", "app"}, {"", ""}, {"A", "app"}} {
			_, err := ring.ByName(ctx, unknown[0], unknown[1])
			require.ErrorIs(t, err, store.ErrNotFound, unknown)
		}
		// T-SEC-2: a row that was moved to another app opens nothing.
		stolen := store.App{NSID: spaces["b"], Name: "stolen", Protocol: "ax", CreatedAt: now}
		require.NoError(t, s.CreateApp(ctx, &stolen, func(int64) (string, error) { return sealedA, nil }, entry()))
		_, err = ring.ByName(ctx, "b", "stolen")
		require.Error(t, err)
		require.NotErrorIs(t, err, store.ErrNotFound)
	})
}
