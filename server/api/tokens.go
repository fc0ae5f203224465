package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ax-scheduler/ax/internal/auth"
	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/server/httpx"
)

type programTokenView struct {
	ID        string   `json:"id"`
	Name      string   `json:"name"`
	Scopes    []string `json:"scopes"`
	Token     string   `json:"token,omitempty" doc:"shown once, when it is made"`
	CreatedBy string   `json:"createdBy"`
	CreatedAt string   `json:"createdAt"`
	ExpiresAt string   `json:"expiresAt"`
}

type tokenInput struct {
	NamespacePath
	Body struct {
		Name   string   `json:"name" doc:"1 to 128 characters, unique in the namespace"`
		Scopes []string `json:"scopes" minItems:"1" maxItems:"10" doc:"what it is for: events.send"`
		Life   string   `json:"life,omitempty" doc:"default 2160h (90 days), at most 8784h"`
	}
}

// tokenLife is the life of a token unless somebody says otherwise.
const tokenLife = 90 * 24 * time.Hour

type tokenPath struct {
	NamespacePath
	ID string `path:"id" maxLength:"20"`
}

func (a *API) programTokens() {
	const path = "/api/v1/namespaces/{namespace}/tokens"
	add(a, http.MethodGet, path, "listTokens", "Tokens of programs", inNamespace(auth.TokenRead), a.listTokens)
	add(a, http.MethodPost, path, "createToken", "Make a token for a program; it is shown once", inNamespace(auth.TokenCreate), a.createToken, created)
	add(a, http.MethodDelete, path+"/{id}", "deleteToken", "Revoke a token; within two seconds it is worth nothing on every server", inNamespace(auth.TokenDelete), a.deleteToken)
}

func viewOfProgramToken(t store.Token) programTokenView {
	return programTokenView{ID: id(t.ID), Name: t.Name, Scopes: strings.Split(t.Scopes, ","), CreatedBy: t.CreatedBy, CreatedAt: stamp(t.CreatedAt), ExpiresAt: stamp(t.ExpiresAt)}
}

func (a *API) listTokens(ctx context.Context, _ *NamespacePath) (*body[list[programTokenView]], error) {
	all, err := a.Store.Tokens(ctx, nsOf(ctx).ID)
	if err != nil {
		return nil, err
	}
	out := list[programTokenView]{Items: []programTokenView{}}
	for _, t := range all {
		out.Items = append(out.Items, viewOfProgramToken(t))
	}
	return &body[list[programTokenView]]{out}, nil
}

func (a *API) createToken(ctx context.Context, in *tokenInput) (*body[programTokenView], error) {
	name := strings.TrimSpace(in.Body.Name)
	if n := utf8.RuneCountInString(name); n < 1 || n > 128 || strings.ContainsRune(name, 0) {
		return nil, httpx.Invalid(ctx, "bad_name", "name", name, "1 to 128 characters.", "1 至 128 个字符。")
	}
	for i, s := range in.Body.Scopes {
		if !slices.Contains(auth.Scopes(), s) || slices.Contains(in.Body.Scopes[:i], s) {
			return nil, httpx.Invalid(ctx, "not_allowed", fmt.Sprintf("scopes[%d]", i), s, "Allowed, each once: "+strings.Join(auth.Scopes(), ", ")+".", "允许（各一次）："+strings.Join(auth.Scopes(), "、")+"。")
		}
	}
	life := tokenLife
	if in.Body.Life != "" {
		d, err := time.ParseDuration(in.Body.Life)
		if err != nil || d < time.Minute || d > auth.MaxProgramLife {
			return nil, httpx.Invalid(ctx, "bad_duration", "life", in.Body.Life, "1m to 8784h, such as 2160h.", "取值为 1m 至 8784h，例如 2160h。")
		}
		life = d
	}
	token, hash := auth.NewProgramToken()
	now := clock.Millis(a.Clock)
	t := store.Token{NSID: nsOf(ctx).ID, Name: name, Hash: hash, Scopes: strings.Join(in.Body.Scopes, ","), CreatedBy: httpx.CallerOf(ctx).Principal.Name, CreatedAt: now, ExpiresAt: now + life.Milliseconds()}
	entry, err := a.entry(ctx, auth.TokenCreate, "token", 0, name, nil, map[string]any{"scopes": in.Body.Scopes, "expiresAt": stamp(t.ExpiresAt)})
	if err != nil {
		return nil, err
	}
	if err := a.Store.CreateToken(ctx, &t, entry); err != nil {
		return nil, err
	}
	if err := a.Auth.Sync(ctx); err != nil {
		return nil, err
	}
	v := viewOfProgramToken(t)
	v.Token = token
	return &body[programTokenView]{v}, nil
}

func (a *API) deleteToken(ctx context.Context, in *tokenPath) (*empty, error) {
	n, err := parseID(in.ID)
	if err != nil {
		return nil, err
	}
	entry, err := a.entry(ctx, auth.TokenDelete, "token", n, "", nil, nil)
	if err != nil {
		return nil, err
	}
	if err := a.Store.DeleteToken(ctx, nsOf(ctx).ID, n, entry); err != nil {
		return nil, err
	}
	return nil, a.Auth.Sync(ctx)
}
