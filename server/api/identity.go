package api

import (
	"context"
	"net/http"
	"sort"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/ax-scheduler/ax/internal/auth"
	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/server/httpx"
)

// UserView is a person.
type UserView struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	DisplayName string `json:"displayName"`
}

type tokenView struct {
	AccessToken string   `json:"accessToken" doc:"send it as Authorization: Bearer"`
	ExpiresIn   int      `json:"expiresIn" doc:"seconds"`
	User        UserView `json:"user"`
}

type tokenOutput struct {
	SetCookie http.Cookie `header:"Set-Cookie"`
	Body      tokenView
}

type loginInput struct {
	Body struct {
		Username string `json:"username" minLength:"1" maxLength:"128"`
		Password string `json:"password" minLength:"1" maxLength:"1024"`
	}
}

type refreshInput struct {
	Plain  string `cookie:"ax_rt"`
	Secure string `cookie:"__Host-ax_rt"`
}

func (in refreshInput) token() string {
	if in.Secure != "" {
		return in.Secure
	}
	return in.Plain
}

type setupInput struct {
	Body struct {
		Token    string `json:"token" minLength:"1" maxLength:"128" doc:"from the link that the server printed at its first start"`
		Username string `json:"username" minLength:"1" maxLength:"128"`
		Password string `json:"password" minLength:"1" maxLength:"1024" doc:"15 to 128 characters"`
	}
}

type meView struct {
	UserView
	PlatformAdmin bool            `json:"platformAdmin"`
	Can           []string        `json:"can" doc:"rights on the platform"`
	Namespaces    []meInNamespace `json:"namespaces"`
}

type meInNamespace struct {
	Name        string   `json:"name"`
	DisplayName string   `json:"displayName"`
	Role        string   `json:"role"`
	Can         []string `json:"can"`
}

type metaView struct {
	Version       string `json:"version"`
	Commit        string `json:"commit"`
	Console       bool   `json:"console"`
	SetupRequired bool   `json:"setupRequired"`
	ServerTime    string `json:"serverTime" doc:"ax time"`
	ClockDriftMs  int64  `json:"clockDriftMs" doc:"database clock minus host clock"`
	ClockRefused  int64  `json:"clockRefusedMs" doc:"a step of the database's clock that is not followed until the host's clock agrees; 0 = none"`
	ClockAlarm    bool   `json:"clockAlarm" doc:"the clocks differ by more than 500 ms, or a step is not followed"`
	Demo          bool   `json:"demo"`
}

type empty struct{}

func (a *API) identity() {
	noContent := func(op *huma.Operation) { op.DefaultStatus = http.StatusNoContent }
	add(a, http.MethodPost, "/api/v1/auth/login", "login", "Log in", public(), a.login)
	add(a, http.MethodPost, "/api/v1/auth/refresh", "refresh", "Get a new access token with the refresh cookie", public(), a.refresh)
	add(a, http.MethodPost, "/api/v1/auth/logout", "logout", "End the session of the refresh cookie", public(), a.logout, noContent)
	add(a, http.MethodPost, "/api/v1/setup", "setup", "Make the first administrator", public(), a.setup)
	add(a, http.MethodGet, "/api/v1/meta", "meta", "What this server is", public(), a.meta)
	add(a, http.MethodGet, "/api/v1/me", "me", "Who I am and what I may do", self(), a.me)
}

func (a *API) login(ctx context.Context, in *loginInput) (*tokenOutput, error) {
	tokens, principal, err := a.Auth.Login(ctx, in.Body.Username, in.Body.Password, httpx.CallerOf(ctx).IP)
	if err != nil {
		return nil, err
	}
	return a.tokens(tokens, principal), nil
}

func (a *API) tokens(t auth.Tokens, p auth.Principal) *tokenOutput {
	return &tokenOutput{
		SetCookie: a.cookie(t.Refresh, int(t.RefreshFor/time.Second)),
		Body:      tokenView{AccessToken: t.Access, ExpiresIn: int(t.ExpiresIn / time.Second), User: viewOf(p)},
	}
}

func viewOf(p auth.Principal) UserView {
	return UserView{ID: id(p.UserID), Name: p.Name, DisplayName: p.DisplayName}
}

func (a *API) cookie(value string, seconds int) http.Cookie {
	name := "ax_rt"
	if a.Secure {
		name = "__Host-ax_rt"
	}
	return http.Cookie{Name: name, Value: value, Path: "/", MaxAge: seconds, HttpOnly: true, Secure: a.Secure, SameSite: http.SameSiteStrictMode}
}

func (a *API) refresh(ctx context.Context, in *refreshInput) (*tokenOutput, error) {
	if in.token() == "" {
		return nil, auth.ErrToken
	}
	tokens, principal, err := a.Auth.Refresh(ctx, in.token(), httpx.CallerOf(ctx).IP)
	if err != nil {
		return nil, err
	}
	return a.tokens(tokens, principal), nil
}

type logoutOutput struct {
	SetCookie http.Cookie `header:"Set-Cookie"`
}

func (a *API) logout(ctx context.Context, in *refreshInput) (*logoutOutput, error) {
	if in.token() != "" {
		if err := a.Auth.Logout(ctx, in.token()); err != nil {
			return nil, err
		}
	}
	return &logoutOutput{SetCookie: a.cookie("", -1)}, nil
}

func (a *API) setup(ctx context.Context, in *setupInput) (*tokenOutput, error) {
	c := httpx.CallerOf(ctx)
	entry := &store.AuditEntry{
		At: clock.Millis(a.Clock), ActorType: "setup", ActorName: in.Body.Username, IP: c.IP, RequestID: c.RequestID,
		Action: string(auth.UserCreate), ObjectType: "user", Outcome: "success",
	}
	if _, err := a.Auth.Setup(ctx, in.Body.Token, in.Body.Username, in.Body.Password, c.IP, entry); err != nil {
		return nil, err
	}
	tokens, principal, err := a.Auth.Login(ctx, in.Body.Username, in.Body.Password, c.IP)
	if err != nil {
		return nil, err
	}
	return a.tokens(tokens, principal), nil
}

func (a *API) meta(ctx context.Context, _ *empty) (*body[metaView], error) {
	someone, err := a.Store.HasUsers(ctx)
	if err != nil {
		return nil, err
	}
	status := a.ClockStatus()
	return &body[metaView]{metaView{
		Version: a.Version, Commit: a.Commit, Console: a.Console, SetupRequired: !someone, ServerTime: stamp(clock.Millis(a.Clock)), ClockDriftMs: status.Drift.Milliseconds(), ClockRefused: status.Refused.Milliseconds(), ClockAlarm: status.Alarm(), Demo: a.Demo,
	}}, nil
}

func (a *API) me(ctx context.Context, _ *empty) (*body[meView], error) {
	p := httpx.CallerOf(ctx).Principal
	platform, roles := a.Auth.Roles(p)
	out := meView{UserView: viewOf(p), PlatformAdmin: platform == "admin", Can: names(a.Auth.Permissions(p, 0)), Namespaces: []meInNamespace{}}
	all, err := a.Store.Namespaces(ctx)
	if err != nil {
		return nil, err
	}
	for _, n := range all {
		can := a.Auth.Permissions(p, n.ID)
		if len(can) == 0 {
			continue
		}
		role := roles[n.ID]
		if role == "" {
			role = "platform-" + platform
		}
		out.Namespaces = append(out.Namespaces, meInNamespace{Name: n.Name, DisplayName: n.DisplayName, Role: role, Can: names(can)})
	}
	return &body[meView]{out}, nil
}

func names(list []auth.Permission) []string {
	out := make([]string, len(list))
	for i, p := range list {
		out[i] = string(p)
	}
	sort.Strings(out)
	return out
}
