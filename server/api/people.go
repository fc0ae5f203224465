package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ax-scheduler/ax/internal/auth"
	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/server/httpx"
)

type roleIn struct {
	Namespace string `json:"namespace" maxLength:"64"`
	Role      string `json:"role" doc:"admin, developer, operator, read-only or auditor"`
}

// PersonView is a person with what he is where.
type PersonView struct {
	UserView
	Status       string   `json:"status" enum:"active,suspended"`
	PlatformRole string   `json:"platformRole" doc:"admin, auditor, or empty"`
	Namespaces   []roleIn `json:"namespaces"`
	CreatedAt    string   `json:"createdAt"`
}

type newPersonView struct {
	PersonView
	Password string `json:"password,omitempty" doc:"shown once, when the server made it"`
}

type passwordView struct {
	Password string `json:"password" doc:"shown once; empty when the caller chose it"`
}

type personInput struct {
	Body struct {
		Name         string   `json:"name" maxLength:"64" doc:"1 to 64 letters, digits and . _ @ + -; it stays as it is"`
		DisplayName  string   `json:"displayName,omitempty" maxLength:"128" doc:"default: the name"`
		Password     string   `json:"password,omitempty" maxLength:"1024" doc:"15 to 128 characters; left out, the server makes one and shows it once"`
		PlatformRole string   `json:"platformRole,omitempty" doc:"admin, auditor, or empty"`
		Namespaces   []roleIn `json:"namespaces,omitempty" maxItems:"200"`
	}
}

// PersonPath is the user of a path.
type PersonPath struct {
	ID string `path:"id" maxLength:"20"`
}

type editPersonInput struct {
	PersonPath
	Body struct {
		DisplayName  *string `json:"displayName,omitempty" maxLength:"128"`
		Status       *string `json:"status,omitempty" doc:"active or suspended; whoever is suspended is signed out everywhere within two seconds"`
		PlatformRole *string `json:"platformRole,omitempty" doc:"admin, auditor, or empty"`
	}
}

type resetInput struct {
	PersonPath
	Body struct {
		Password string `json:"password,omitempty" maxLength:"1024" doc:"15 to 128 characters; left out, the server makes one and shows it once"`
	}
}

type memberView struct {
	UserView
	Status string `json:"status"`
	Role   string `json:"role"`
	Since  string `json:"since"`
}

// MemberPath is the member of a path.
type MemberPath struct {
	NamespacePath
	User string `path:"user" maxLength:"64" doc:"the user's name"`
}

type memberInput struct {
	MemberPath
	Body struct {
		Role string `json:"role" doc:"admin, developer, operator, read-only or auditor"`
	}
}

type passwordInput struct {
	Body struct {
		Current  string `json:"current" minLength:"1" maxLength:"1024"`
		Password string `json:"password" minLength:"1" maxLength:"1024" doc:"15 to 128 characters"`
	}
}

type sessionView struct {
	ID        string `json:"id"`
	Current   bool   `json:"current" doc:"the one that asks"`
	UsedAt    string `json:"usedAt" doc:"when it was last renewed"`
	ExpiresAt string `json:"expiresAt"`
}

type sessionPath struct {
	ID string `path:"id" maxLength:"64"`
}

func (a *API) people() {
	const members = "/api/v1/namespaces/{namespace}/members"
	add(a, http.MethodGet, "/api/v1/users", "listUsers", "People who can sign in, with their roles", onPlatform(auth.UserRead), a.listUsers)
	add(a, http.MethodPost, "/api/v1/users", "createUser", "Make a person; a password that the server makes is shown once", onPlatform(auth.UserCreate), a.createUser, created)
	add(a, http.MethodPut, "/api/v1/users/{id}", "updateUser", "Change a person's display name, status or role on the platform", onPlatform(auth.UserUpdate), a.updateUser)
	add(a, http.MethodPost, "/api/v1/users/{id}/reset-password", "resetPassword", "Give a person another password and end all his sessions", onPlatform(auth.UserUpdate), a.resetPassword)
	add(a, http.MethodGet, members, "listMembers", "Who has which role in a namespace", inNamespace(auth.MemberRead), a.listMembers)
	add(a, http.MethodPut, members+"/{user}", "setMember", "Give somebody a role in a namespace, instead of the one that he had", inNamespace(auth.MemberUpdate), a.setMember)
	add(a, http.MethodDelete, members+"/{user}", "deleteMember", "Take somebody's role in a namespace", inNamespace(auth.MemberDelete), a.deleteMember)
	add(a, http.MethodPut, "/api/v1/me/password", "changePassword", "Change my password; all my other sessions end", self(), a.changePassword)
	add(a, http.MethodGet, "/api/v1/me/sessions", "mySessions", "Where I am signed in", self(), a.mySessions)
	add(a, http.MethodDelete, "/api/v1/me/sessions/{id}", "endSession", "End one of my sessions", self(), a.endSession)
}

// persons makes views of people, with what they are in namespaces.
func (a *API) persons(ctx context.Context, users ...store.User) ([]PersonView, error) {
	spaces, err := a.Store.Namespaces(ctx)
	if err != nil {
		return nil, err
	}
	members, err := a.Store.Members(ctx)
	if err != nil {
		return nil, err
	}
	names := make(map[int64]string, len(spaces))
	for _, n := range spaces {
		names[n.ID] = n.Name
	}
	of := map[int64][]roleIn{}
	for _, m := range members {
		if name, ok := names[m.NSID]; ok {
			of[m.UserID] = append(of[m.UserID], roleIn{name, m.Role})
		}
	}
	out := make([]PersonView, len(users))
	for i, u := range users {
		out[i] = PersonView{UserView: UserView{ID: id(u.ID), Name: u.Name, DisplayName: u.DisplayName}, Status: u.Status, PlatformRole: u.PlatformRole, Namespaces: of[u.ID], CreatedAt: stamp(u.CreatedAt)}
		if out[i].Namespaces == nil {
			out[i].Namespaces = []roleIn{}
		}
		slices.SortFunc(out[i].Namespaces, func(a, b roleIn) int { return strings.Compare(a.Namespace, b.Namespace) })
	}
	return out, nil
}

func (a *API) listUsers(ctx context.Context, _ *empty) (*body[list[PersonView]], error) {
	users, err := a.Store.Users(ctx)
	if err != nil {
		return nil, err
	}
	items, err := a.persons(ctx, users...)
	return &body[list[PersonView]]{list[PersonView]{Items: items}}, err
}

func platformRole(ctx context.Context, role string) error {
	if role == "" || auth.PlatformRole(role) {
		return nil
	}
	return httpx.Invalid(ctx, "not_allowed", "platformRole", role, "Allowed: admin, auditor, or empty.", "允许：admin、auditor 或留空。")
}

func namespaceRole(ctx context.Context, field, role string) error {
	if auth.NamespaceRole(role) {
		return nil
	}
	return httpx.Invalid(ctx, "not_allowed", field, role, "Allowed: admin, developer, operator, read-only, auditor.", "允许：admin、developer、operator、read-only、auditor。")
}

func displayName(ctx context.Context, name, other string) (string, error) {
	name = strings.TrimSpace(name)
	if name == "" {
		return other, nil
	}
	if !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", httpx.Invalid(ctx, "bad_name", "displayName", "", "1 to 128 characters, without control characters.", "1 至 128 个字符，不含控制字符。")
	}
	return name, nil
}

func (a *API) createUser(ctx context.Context, in *personInput) (*body[newPersonView], error) {
	if err := platformRole(ctx, in.Body.PlatformRole); err != nil {
		return nil, err
	}
	shown, err := displayName(ctx, in.Body.DisplayName, in.Body.Name)
	if err != nil {
		return nil, err
	}
	now := clock.Millis(a.Clock)
	var members []store.Member
	for i, r := range in.Body.Namespaces {
		if err := namespaceRole(ctx, fmt.Sprintf("namespaces[%d].role", i), r.Role); err != nil {
			return nil, err
		}
		n, err := a.Store.NamespaceByName(ctx, r.Namespace)
		if errors.Is(err, store.ErrNotFound) || slices.ContainsFunc(members, func(m store.Member) bool { return m.NSID == n.ID }) {
			return nil, httpx.Invalid(ctx, "unknown_namespace", fmt.Sprintf("namespaces[%d].namespace", i), r.Namespace, "Name a namespace that there is, each once.", "请填写存在的命名空间，每个仅一次。")
		}
		if err != nil {
			return nil, err
		}
		members = append(members, store.Member{NSID: n.ID, Role: r.Role, CreatedAt: now})
	}
	password, made := in.Body.Password, ""
	if password == "" {
		made = auth.NewPassword()
		password = made
	}
	u := store.User{Name: in.Body.Name, DisplayName: shown, PlatformRole: in.Body.PlatformRole, CreatedAt: now}
	spaces := in.Body.Namespaces
	if spaces == nil {
		spaces = []roleIn{}
	}
	entry, err := a.entry(ctx, auth.UserCreate, "user", 0, u.Name, nil, map[string]any{"name": u.Name, "displayName": shown, "status": store.UserActive, "platformRole": u.PlatformRole, "namespaces": spaces})
	if err != nil {
		return nil, err
	}
	if err := a.Auth.Enroll(ctx, &u, password, members, entry); err != nil {
		return nil, err
	}
	return &body[newPersonView]{newPersonView{
		PersonView: PersonView{UserView: UserView{ID: id(u.ID), Name: u.Name, DisplayName: shown}, Status: u.Status, PlatformRole: u.PlatformRole, Namespaces: spaces, CreatedAt: stamp(now)},
		Password:   made,
	}}, nil
}

// person finds the person of a path.
func (a *API) person(ctx context.Context, path PersonPath) (store.User, error) {
	n, err := parseID(path.ID)
	if err != nil {
		return store.User{}, err
	}
	return a.Store.UserByID(ctx, n)
}

// told is what the audit trail tells of a person.
func told(u store.User) map[string]any {
	return map[string]any{"displayName": u.DisplayName, "status": u.Status, "platformRole": u.PlatformRole}
}

func (a *API) updateUser(ctx context.Context, in *editPersonInput) (*body[PersonView], error) {
	before, err := a.person(ctx, in.PersonPath)
	if err != nil {
		return nil, err
	}
	u := before
	if in.Body.DisplayName != nil {
		if u.DisplayName, err = displayName(ctx, *in.Body.DisplayName, u.Name); err != nil {
			return nil, err
		}
	}
	if in.Body.Status != nil {
		if u.Status = *in.Body.Status; u.Status != store.UserActive && u.Status != store.UserSuspended {
			return nil, httpx.Invalid(ctx, "not_allowed", "status", u.Status, "Allowed: active, suspended.", "允许：active、suspended。")
		}
	}
	if in.Body.PlatformRole != nil {
		u.PlatformRole = *in.Body.PlatformRole
		if err := platformRole(ctx, u.PlatformRole); err != nil {
			return nil, err
		}
	}
	entry, err := a.entry(ctx, auth.UserUpdate, "user", u.ID, u.Name, told(before), told(u))
	if err != nil {
		return nil, err
	}
	if err := a.Store.UpdateUser(ctx, before, u, entry); err != nil {
		return nil, err
	}
	if err := a.Auth.Sync(ctx); err != nil {
		return nil, err
	}
	views, err := a.persons(ctx, u)
	if err != nil {
		return nil, err
	}
	return &body[PersonView]{views[0]}, nil
}

func (a *API) resetPassword(ctx context.Context, in *resetInput) (*body[passwordView], error) {
	u, err := a.person(ctx, in.PersonPath)
	if err != nil {
		return nil, err
	}
	password, made := in.Body.Password, ""
	if password == "" {
		made = auth.NewPassword()
		password = made
	}
	entry, err := a.entry(ctx, auth.UserUpdate, "user", u.ID, u.Name, nil, map[string]any{"reset": "password"})
	if err != nil {
		return nil, err
	}
	if err := a.Auth.SetPassword(ctx, u, password, entry); err != nil {
		return nil, err
	}
	return &body[passwordView]{passwordView{made}}, nil
}

func (a *API) listMembers(ctx context.Context, _ *NamespacePath) (*body[list[memberView]], error) {
	members, err := a.Store.MembersOf(ctx, nsOf(ctx).ID)
	if err != nil {
		return nil, err
	}
	users, err := a.Store.Users(ctx)
	if err != nil {
		return nil, err
	}
	out := list[memberView]{Items: []memberView{}}
	for _, m := range members {
		i := slices.IndexFunc(users, func(u store.User) bool { return u.ID == m.UserID })
		if i < 0 {
			continue
		}
		u := users[i]
		out.Items = append(out.Items, memberView{UserView: UserView{ID: id(u.ID), Name: u.Name, DisplayName: u.DisplayName}, Status: u.Status, Role: m.Role, Since: stamp(m.CreatedAt)})
	}
	return &body[list[memberView]]{out}, nil
}

// member finds the person of a path and his role, "" for none.
func (a *API) member(ctx context.Context, path MemberPath) (store.User, string, error) {
	u, err := a.Store.UserByName(ctx, path.User)
	if err != nil {
		return u, "", err
	}
	m, err := a.Store.MemberOf(ctx, nsOf(ctx).ID, u.ID)
	if errors.Is(err, store.ErrNotFound) {
		return u, "", nil
	}
	return u, m.Role, err
}

func roleTold(role string) any {
	if role == "" {
		return nil
	}
	return map[string]any{"role": role}
}

func (a *API) setMember(ctx context.Context, in *memberInput) (*body[memberView], error) {
	if err := namespaceRole(ctx, "role", in.Body.Role); err != nil {
		return nil, err
	}
	u, from, err := a.member(ctx, in.MemberPath)
	if err != nil {
		return nil, err
	}
	m := store.Member{NSID: nsOf(ctx).ID, UserID: u.ID, Role: in.Body.Role, CreatedAt: clock.Millis(a.Clock)}
	entry, err := a.entry(ctx, auth.MemberUpdate, "member", u.ID, u.Name, roleTold(from), roleTold(m.Role))
	if err != nil {
		return nil, err
	}
	if err := a.Store.SetMember(ctx, m, from, entry); err != nil {
		return nil, err
	}
	if err := a.Auth.Sync(ctx); err != nil {
		return nil, err
	}
	if m, err = a.Store.MemberOf(ctx, m.NSID, u.ID); err != nil {
		return nil, err
	}
	return &body[memberView]{memberView{UserView: UserView{ID: id(u.ID), Name: u.Name, DisplayName: u.DisplayName}, Status: u.Status, Role: m.Role, Since: stamp(m.CreatedAt)}}, nil
}

func (a *API) deleteMember(ctx context.Context, in *MemberPath) (*empty, error) {
	u, from, err := a.member(ctx, *in)
	if err != nil {
		return nil, err
	}
	entry, err := a.entry(ctx, auth.MemberDelete, "member", u.ID, u.Name, roleTold(from), nil)
	if err != nil {
		return nil, err
	}
	if err := a.Store.DeleteMember(ctx, nsOf(ctx).ID, u.ID, entry); err != nil {
		return nil, err
	}
	return nil, a.Auth.Sync(ctx)
}

func (a *API) changePassword(ctx context.Context, in *passwordInput) (*tokenOutput, error) {
	c := httpx.CallerOf(ctx)
	entry, err := a.entry(ctx, "password.change", "user", c.Principal.UserID, c.Principal.Name, nil, nil)
	if err != nil {
		return nil, err
	}
	tokens, p, err := a.Auth.ChangePassword(ctx, c.Principal, in.Body.Current, in.Body.Password, c.IP, entry)
	var throttled *auth.ThrottledError
	if errors.Is(err, auth.ErrCredentials) && !errors.As(err, &throttled) {
		return nil, httpx.Invalid(ctx, "wrong_password", "current", "", "This is not your password now.", "当前密码不正确。")
	}
	if err != nil {
		return nil, err
	}
	return a.tokens(tokens, p), nil
}

func (a *API) mySessions(ctx context.Context, _ *empty) (*body[list[sessionView]], error) {
	p := httpx.CallerOf(ctx).Principal
	sessions, err := a.Store.SessionsOf(ctx, p.UserID, clock.Millis(a.Clock))
	if err != nil {
		return nil, err
	}
	out := list[sessionView]{Items: []sessionView{}}
	for _, v := range sessions {
		out.Items = append(out.Items, sessionView{ID: v.Family, Current: v.Family == p.Session, UsedAt: stamp(v.CreatedAt), ExpiresAt: stamp(min(v.ExpiresAt, v.AbsoluteExpiresAt))})
	}
	return &body[list[sessionView]]{out}, nil
}

func (a *API) endSession(ctx context.Context, in *sessionPath) (*empty, error) {
	return nil, a.Auth.EndSession(ctx, httpx.CallerOf(ctx).Principal, in.ID)
}
