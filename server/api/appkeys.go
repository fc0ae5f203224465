package api

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/ax-scheduler/ax/internal/auth"
	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/protocol"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/server/httpx"
)

// AppKeyView is a key without what it is.
type AppKeyView struct {
	ID        string  `json:"id"`
	CreatedAt string  `json:"createdAt"`
	NotAfter  *string `json:"notAfter" nullable:"true" doc:"when it ends; null = it has no end"`
	Valid     bool    `json:"valid"`
}

type newAppKeyView struct {
	AppKeyView
	Key string `json:"key" doc:"shown once; executors sign with it"`
}

// AppPath is the app of a path.
type AppPath struct {
	NamespacePath
	App string `path:"app" maxLength:"64"`
}

type rotateInput struct {
	AppPath
	Body struct {
		Overlap string `json:"overlap,omitempty" doc:"how long the key before stays valid: 0s to 720h, default 24h"`
	}
}

type revokeInput struct {
	AppPath
	ID string `path:"id" maxLength:"20"`
}

const (
	keyOverlap    = 24 * time.Hour
	maxKeyOverlap = 720 * time.Hour
)

func (a *API) appKeys() {
	const keys = "/api/v1/namespaces/{namespace}/apps/{app}/keys"
	add(a, http.MethodGet, keys, "listAppKeys", "Keys of an app, newest first; what they are is not shown", inNamespace(auth.AppKeyRead), a.listAppKeys)
	add(a, http.MethodPost, keys, "rotateAppKey", "Make another key; the one before stays valid for a while, older ones end", inNamespace(auth.AppKeyRotate), a.rotateAppKey, created)
	add(a, http.MethodDelete, keys+"/{id}", "revokeAppKey", "End a key now; within two seconds no server takes it", inNamespace(auth.AppKeyDelete), a.revokeAppKey)
}

func viewOfKey(k store.AppKey, now int64) AppKeyView {
	return AppKeyView{ID: id(k.ID), CreatedAt: stamp(k.CreatedAt), NotAfter: at(k.NotAfter), Valid: k.NotAfter == 0 || k.NotAfter > now}
}

func (a *API) listAppKeys(ctx context.Context, in *AppPath) (*body[list[AppKeyView]], error) {
	app, err := a.Store.AppByName(ctx, nsOf(ctx).ID, in.App)
	if err != nil {
		return nil, err
	}
	keys, err := a.Store.AppKeys(ctx, app)
	if err != nil {
		return nil, err
	}
	out := list[AppKeyView]{Items: []AppKeyView{}}
	for _, k := range keys {
		out.Items = append(out.Items, viewOfKey(k, clock.Millis(a.Clock)))
	}
	return &body[list[AppKeyView]]{out}, nil
}

func (a *API) rotateAppKey(ctx context.Context, in *rotateInput) (*body[newAppKeyView], error) {
	app, err := a.Store.AppByName(ctx, nsOf(ctx).ID, in.App)
	if err != nil {
		return nil, err
	}
	overlap := keyOverlap
	if in.Body.Overlap != "" {
		if overlap, err = time.ParseDuration(in.Body.Overlap); err != nil || overlap < 0 || overlap > maxKeyOverlap {
			return nil, httpx.Invalid(ctx, "bad_duration", "overlap", in.Body.Overlap, "0s to 720h, such as 24h.", "取值为 0s 至 720h，例如 24h。")
		}
	}
	key, text := protocol.NewKey()
	sealed, err := a.Ring.Seal(app.NSID, app.ID, key)
	if err != nil {
		return nil, err
	}
	now := clock.Millis(a.Clock)
	entry, err := a.entry(ctx, auth.AppKeyRotate, "app", app.ID, app.Name, nil, map[string]any{"overlap": overlap.String()})
	if err != nil {
		return nil, err
	}
	k, err := a.Store.RotateKey(ctx, app, sealed, now, now+overlap.Milliseconds(), entry)
	if err != nil {
		return nil, err
	}
	return &body[newAppKeyView]{newAppKeyView{AppKeyView: viewOfKey(k, now), Key: text}}, nil
}

func (a *API) revokeAppKey(ctx context.Context, in *revokeInput) (*empty, error) {
	app, err := a.Store.AppByName(ctx, nsOf(ctx).ID, in.App)
	if err != nil {
		return nil, err
	}
	n, err := parseID(in.ID)
	if err != nil {
		return nil, err
	}
	entry, err := a.entry(ctx, auth.AppKeyDelete, "app", app.ID, app.Name, map[string]any{"number": strconv.FormatInt(n, 10)}, nil)
	if err != nil {
		return nil, err
	}
	return nil, a.Store.RevokeKey(ctx, app, n, clock.Millis(a.Clock), entry)
}
