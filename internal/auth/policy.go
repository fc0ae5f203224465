package auth

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/casbin/casbin/v2"
	"github.com/casbin/casbin/v2/model"
	"github.com/casbin/casbin/v2/persist"

	"github.com/ax-scheduler/ax/internal/store"
)

// modelText is the rights model. The cheap comparisons come first: g is the expensive one.
// Platform rights are a question of their own, about the namespace n:0, and no wildcard.
const modelText = `
[request_definition]
r = sub, ns, obj, act
[policy_definition]
p = role, obj, act
[role_definition]
g = _, _, _
[policy_effect]
e = some(where (p.eft == allow))
[matchers]
m = r.obj == p.obj && r.act == p.act && g(r.sub, p.role, r.ns)
`

// Subjects and namespaces are numbers under a type, so that no name that somebody chose
// ever reaches casbin, where a subject that is called like a role has its rights.
var (
	subjectForm   = regexp.MustCompile(`^[us]:[1-9][0-9]{0,18}$`)
	namespaceForm = regexp.MustCompile(`^n:(0|[1-9][0-9]{0,18})$`)
)

func subject(user int64) string     { return "u:" + strconv.FormatInt(user, 10) }
func namespaceName(ns int64) string { return "n:" + strconv.FormatInt(ns, 10) }

// userOf reads the number of a subject "u:<id>"; ok is false for anything else.
func userOf(sub string) (id int64, ok bool) {
	if !subjectForm.MatchString(sub) || sub[0] != 'u' {
		return 0, false
	}
	id, err := strconv.ParseInt(sub[2:], 10, 64)
	return id, err == nil
}

// grouping is one g row: a role that is given to somebody somewhere.
type grouping struct{ sub, role, ns string }

// groupings makes the g rows of active users. Rows that the closed roles do not know give
// nothing, and are counted in odd.
func groupings(users []store.User, members []store.Member) (out []grouping, odd int) {
	active := make(map[int64]bool, len(users))
	for _, u := range users {
		if u.Status != store.UserActive {
			continue
		}
		active[u.ID] = true
		if u.PlatformRole == "" {
			continue
		}
		g := grouping{subject(u.ID), roleName(u.PlatformRole, true), namespaceName(0)}
		if !g.sound() {
			odd++
			continue
		}
		out = append(out, g)
	}
	for _, m := range members {
		if !active[m.UserID] {
			continue
		}
		g := grouping{subject(m.UserID), roleName(m.Role, false), namespaceName(m.NSID)}
		if m.NSID == 0 || !g.sound() {
			odd++
			continue
		}
		out = append(out, g)
	}
	return out, odd
}

func (g grouping) sound() bool {
	return subjectForm.MatchString(g.sub) && namespaceForm.MatchString(g.ns) && g.role != ""
}

// roleName is what casbin calls a stored role; "" for one that does not exist in its place.
func roleName(stored string, platform bool) string {
	for _, r := range closed {
		if r.stored == stored && r.platform == platform {
			return "r:" + r.name
		}
	}
	return ""
}

// adapter gives casbin the policy: p rows from the closed roles, g rows from the rows that
// were read last. It never writes: rights change in SQL, and are then loaded anew.
type adapter struct{ rows []grouping }

var errReadOnly = errors.New("the policy is changed in the database, not through casbin")

// LoadPolicy is casbin's.
func (a *adapter) LoadPolicy(m model.Model) error {
	for _, r := range closed {
		for _, p := range r.may {
			object, action, _ := strings.Cut(string(p), ".")
			if err := persist.LoadPolicyArray([]string{"p", "r:" + r.name, object, action}, m); err != nil {
				return fmt.Errorf("role %s: %w", r.name, err)
			}
		}
	}
	for _, g := range a.rows {
		if !g.sound() {
			return fmt.Errorf("grouping %v has not the closed form", g)
		}
		if err := persist.LoadPolicyArray([]string{"g", g.sub, g.role, g.ns}, m); err != nil {
			return fmt.Errorf("grouping: %w", err)
		}
	}
	return nil
}

// SavePolicy refuses.
func (a *adapter) SavePolicy(model.Model) error { return errReadOnly }

// AddPolicy refuses.
func (a *adapter) AddPolicy(string, string, []string) error { return errReadOnly }

// RemovePolicy refuses.
func (a *adapter) RemovePolicy(string, string, []string) error { return errReadOnly }

// RemoveFilteredPolicy refuses.
func (a *adapter) RemoveFilteredPolicy(string, string, int, ...string) error { return errReadOnly }

func newEnforcer(a *adapter) (*casbin.Enforcer, error) {
	m, err := model.NewModelFromString(modelText)
	if err != nil {
		return nil, fmt.Errorf("rights model: %w", err)
	}
	e, err := casbin.NewEnforcer(m, a)
	if err != nil {
		return nil, fmt.Errorf("rights model: %w", err)
	}
	return e, nil
}

// snapshot answers questions about rights. It does not change once it is published.
type snapshot struct {
	version  int64
	users    map[int64]*account
	programs programs
	granted  map[place]roleSet
	// having tells for each permission which roles have it.
	having []roleSet
}

// roleSet has a bit for each closed role.
type roleSet uint8

type place struct{ user, ns int64 }

type account struct {
	name, displayName string
	active            bool
	authVersion       int64
	platform          roleSet
}

// newSnapshot flattens what the enforcer holds.
func newSnapshot(e *casbin.Enforcer, users []store.User, version int64) (*snapshot, error) {
	s := &snapshot{version: version, users: make(map[int64]*account, len(users)), granted: map[place]roleSet{}, having: make([]roleSet, len(all))}
	bit := map[string]roleSet{}
	for i, r := range closed {
		bit["r:"+r.name] = 1 << i
	}
	policy, err := e.GetPolicy()
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	for _, row := range policy {
		i, ok := permissionBit[Permission(row[1]+"."+row[2])]
		if !ok {
			return nil, fmt.Errorf("policy names the unknown permission %s.%s", row[1], row[2])
		}
		s.having[i] |= bit[row[0]]
	}
	for _, u := range users {
		s.users[u.ID] = &account{name: u.Name, displayName: u.DisplayName, active: u.Status == store.UserActive, authVersion: u.AuthVersion}
	}
	groups, err := e.GetGroupingPolicy()
	if err != nil {
		return nil, fmt.Errorf("read groupings: %w", err)
	}
	for _, row := range groups {
		user, ok := userOf(row[0])
		ns, err := strconv.ParseInt(strings.TrimPrefix(row[2], "n:"), 10, 64)
		if !ok || err != nil || bit[row[1]] == 0 {
			return nil, fmt.Errorf("grouping %v has not the closed form", row)
		}
		if ns == 0 {
			if u := s.users[user]; u != nil {
				u.platform |= bit[row[1]]
			}
			continue
		}
		s.granted[place{user, ns}] |= bit[row[1]]
	}
	return s, nil
}

// rights tells through what p may do perm in ns: his role there, his platform role. Both are
// false for whoever is unknown, suspended, or logged out since.
func (s *snapshot) rights(p Principal, ns int64, perm Permission) (member, platform bool) {
	if s == nil {
		return false, false
	}
	if p.TokenID != 0 {
		return s.programMay(p, ns, perm), false
	}
	u, ok := s.users[p.UserID]
	if !ok || !u.active || u.authVersion != p.AuthVersion {
		return false, false
	}
	i, ok := permissionBit[perm]
	if !ok || ns < 0 {
		return false, false
	}
	having := s.having[i]
	if ns == 0 {
		return false, u.platform&having != 0
	}
	if platformOnly[i] {
		return false, false
	}
	return s.granted[place{p.UserID, ns}]&having != 0, u.platform&having != 0
}

// Allowed tells whether p may do perm in the namespace ns, or, when ns is 0, on the platform.
// It reads the snapshot only and takes nanoseconds.
func (a *Auth) Allowed(p Principal, ns int64, perm Permission) bool {
	member, platform := a.snapshot.Load().rights(p, ns, perm)
	return member || platform
}

// ActsAsPlatform tells whether p may do perm in ns only through a platform role. The audit
// trail marks such an act.
func (a *Auth) ActsAsPlatform(p Principal, ns int64, perm Permission) bool {
	member, platform := a.snapshot.Load().rights(p, ns, perm)
	return platform && !member && ns != 0
}

// Permissions lists what p may do in ns (0 = the platform), sorted.
func (a *Auth) Permissions(p Principal, ns int64) []Permission {
	s := a.snapshot.Load()
	out := make([]Permission, 0, len(all))
	for _, perm := range all {
		if member, platform := s.rights(p, ns, perm); member || platform {
			out = append(out, perm)
		}
	}
	slices.Sort(out)
	return out
}

// Roles tells p's role on the platform ("" for none) and his role in each namespace that he is
// a member of. Both are empty for whoever is unknown, suspended, or logged out since.
func (a *Auth) Roles(p Principal) (platform string, perNamespace map[int64]string) {
	perNamespace = map[int64]string{}
	s := a.snapshot.Load()
	if s == nil {
		return "", perNamespace
	}
	u, ok := s.users[p.UserID]
	if !ok || !u.active || u.authVersion != p.AuthVersion {
		return "", perNamespace
	}
	for at, set := range s.granted {
		if at.user == p.UserID {
			perNamespace[at.ns] = set.stored()
		}
	}
	return u.platform.stored(), perNamespace
}

// stored names the first role of the set as the database does.
func (s roleSet) stored() string {
	for i, r := range closed {
		if s&(1<<i) != 0 {
			return r.stored
		}
	}
	return ""
}

// Limits of how old a snapshot may be.
const (
	pollEvery = time.Second
	// freshFor is how long a server may change things without having read the version.
	freshFor = 30 * time.Second
	// readFor is how long it may answer at all.
	readFor = 60 * time.Second
)
