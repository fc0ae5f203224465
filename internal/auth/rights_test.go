package auth

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/casbin/casbin/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ax-scheduler/ax/internal/store"
)

var update = flag.Bool("update", false, "write the golden files anew")

// decide is what casbin says: the oracle that snapshots are compared with. Whatever has not the
// closed form is denied before it gets there.
func decide(t require.TestingT, e *casbin.Enforcer, sub string, ns int64, p Permission) bool {
	if !subjectForm.MatchString(sub) || !namespaceForm.MatchString(namespaceName(ns)) {
		return false
	}
	object, action, _ := strings.Cut(string(p), ".")
	ask := func(ns int64) bool {
		ok, err := e.Enforce(sub, namespaceName(ns), object, action)
		require.NoError(t, err)
		return ok
	}
	if ns == 0 {
		return ask(0)
	}
	return !p.PlatformOnly() && (ask(ns) || ask(0))
}

// flat builds a snapshot without a database.
func flat(t require.TestingT, users []store.User, members []store.Member) (*snapshot, *casbin.Enforcer) {
	rows, _ := groupings(users, members)
	e, err := newEnforcer(&adapter{rows: rows})
	require.NoError(t, err)
	s, err := newSnapshot(e, users, 1)
	require.NoError(t, err)
	return s, e
}

func may(s *snapshot, user, ns int64, p Permission) bool {
	member, platform := s.rights(Principal{UserID: user, AuthVersion: 1}, ns, p)
	return member || platform
}

// table prints who may do what, as the snapshot answers.
func table(s *snapshot) string {
	var b strings.Builder
	b.WriteString("# Who may do what. platform-* are roles of the platform, the others of one namespace.\n")
	b.WriteString("# ns = in a namespace, P = on the platform only, . = not at all\n\n")
	fmt.Fprintf(&b, "%-18s", "")
	for _, r := range closed {
		fmt.Fprintf(&b, " %-*s", len(r.name), r.name)
	}
	b.WriteString("\n")
	for i, p := range all {
		object, _, _ := strings.Cut(string(p), ".")
		if i > 0 && !strings.HasPrefix(string(all[i-1]), object+".") {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "%-18s", p)
		for j, r := range closed {
			cell := "."
			switch user := int64(j + 1); {
			case may(s, user, 1, p):
				cell = "ns"
			case may(s, user, 0, p):
				cell = "P"
			}
			fmt.Fprintf(&b, " %-*s", len(r.name), cell)
		}
		b.WriteString("\n")
	}
	lines := strings.Split(b.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// oneOfEach has a user for each closed role: the i-th has role i, in namespace 1 or on the platform.
func oneOfEach() (users []store.User, members []store.Member) {
	for i, r := range closed {
		u := store.User{ID: int64(i + 1), Status: store.UserActive, AuthVersion: 1}
		if r.platform {
			u.PlatformRole = r.stored
		} else {
			members = append(members, store.Member{NSID: 1, UserID: u.ID, Role: r.stored})
		}
		users = append(users, u)
	}
	return users, members
}

func TestRightsGolden_TRBAC(t *testing.T) {
	s, _ := flat(t, first(oneOfEach()), second(oneOfEach()))
	const path = "testdata/rights.golden"
	got := table(s)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "run with -update and review the difference")
}

func first(u []store.User, _ []store.Member) []store.User    { return u }
func second(_ []store.User, m []store.Member) []store.Member { return m }

func TestEveryPolicyRowMatters_TRBAC(t *testing.T) {
	users, members := oneOfEach()
	rows, _ := groupings(users, members)
	e, err := newEnforcer(&adapter{rows: rows})
	require.NoError(t, err)
	whole, err := newSnapshot(e, users, 1)
	require.NoError(t, err)
	policy, err := e.GetPolicy()
	require.NoError(t, err)
	golden := table(whole)
	for _, row := range policy {
		removed, err := e.RemovePolicy(row[0], row[1], row[2])
		require.ErrorIs(t, err, errReadOnly, "the adapter never writes")
		require.False(t, removed)
		e.EnableAutoSave(false)
		removed, err = e.RemovePolicy(row[0], row[1], row[2])
		require.NoError(t, err)
		require.True(t, removed)
		without, err := newSnapshot(e, users, 1)
		require.NoError(t, err)
		require.NotEqual(t, golden, table(without), "%v", row)
		_, err = e.AddPolicy(row[0], row[1], row[2])
		require.NoError(t, err)
		e.EnableAutoSave(true)
	}
}

func TestSnapshotIsCasbin_TRBAC(t *testing.T) {
	users, members := oneOfEach()
	s, e := flat(t, users, members)
	for _, u := range users {
		for _, ns := range []int64{0, 1, 2} {
			for _, p := range all {
				require.Equal(t, decide(t, e, subject(u.ID), ns, p), may(s, u.ID, ns, p), "user %d namespace %d %s", u.ID, ns, p)
			}
		}
	}

	r := rand.New(rand.NewPCG(1, 2))
	users, members = nil, nil
	for id := range int64(200) {
		u := store.User{ID: id + 1, Status: store.UserActive, AuthVersion: 1}
		if r.IntN(10) == 0 {
			u.Status = store.UserSuspended
		}
		if r.IntN(20) == 0 {
			u.PlatformRole = []string{PlatformAdmin, PlatformAuditor}[r.IntN(2)]
		}
		users = append(users, u)
		for ns := range int64(40) {
			if r.IntN(8) == 0 {
				members = append(members, store.Member{NSID: ns + 1, UserID: u.ID, Role: namespaceRoles[r.IntN(len(namespaceRoles))]})
			}
		}
	}
	s, e = flat(t, users, members)
	allowed := 0
	for range 5_000 {
		user, ns, p := r.Int64N(205), r.Int64N(43), all[r.IntN(len(all))]
		want := decide(t, e, subject(user), ns, p)
		require.Equal(t, want, may(s, user, ns, p), "user %d namespace %d %s", user, ns, p)
		if want {
			allowed++
		}
	}
	require.Greater(t, allowed, 100, "the comparison must see both answers")
}

func TestDutiesAreApart_TRBAC(t *testing.T) {
	has := func(role string, platform bool) map[Permission]bool {
		out := map[Permission]bool{}
		for _, r := range closed {
			if r.stored == role && r.platform == platform {
				for _, p := range r.may {
					out[p] = true
				}
			}
		}
		require.NotEmpty(t, out)
		return out
	}
	for p := range has(RoleOperator, false) {
		require.NotContains(t, []Permission{JobCreate, JobUpdate, JobDelete, JobImport}, p, "an operator does not change what runs")
	}
	for p := range has(RoleDeveloper, false) {
		require.False(t, strings.HasPrefix(string(p), "member.") && p.Mutates(), "a developer does not change who may act")
		require.NotEqual(t, ChannelUpdate, p, "nor where alerts go")
		require.False(t, strings.HasPrefix(string(p), "appkey."), "nor keys")
	}
	for _, r := range []map[Permission]bool{has(RoleAuditor, false), has(PlatformAuditor, true)} {
		for p := range r {
			require.False(t, p.Mutates(), "an auditor can not act: %s", p)
			require.NotEqual(t, LogRead, p, "log bodies are a grant of their own")
		}
	}
	for p := range has(RoleReadOnly, false) {
		require.False(t, p.Mutates(), p)
	}
	for p := range has(RoleAdmin, false) {
		require.NotContains(t, []Permission{EgressUpdate, QuotaUpdate, NamespaceCreate, UserCreate, SystemUpdate}, p, "those are the platform's")
	}
	for _, p := range all {
		object, action, ok := strings.Cut(string(p), ".")
		require.True(t, ok)
		require.True(t, p.Known())
		require.NotEqual(t, "secret.read", string(p))
		require.False(t, object == "audit" && p.Mutates(), "nobody writes the audit trail")
		require.Contains(t, strings.Fields("read list create update delete write run cancel retry pause rotate export import"), action)
	}
	require.False(t, Permission("job.destroy").Known())
}

func TestNamesGiveNoRights_TRBAC1(t *testing.T) {
	_, e := flat(t, first(oneOfEach()), second(oneOfEach()))
	for _, sub := range []string{"r:admin", "r:platform-admin", "admin", "", "u:", "u:0", "u:01", "u:1 ", " u:1", "u:1\n", "u:-1", "u:1,r:admin", "U:1", "n:1", "u:99999999999999999999", "s:0"} {
		for _, p := range all {
			require.False(t, decide(t, e, sub, 1, p), "%q", sub)
		}
		_, ok := userOf(sub)
		require.False(t, ok, "%q", sub)
	}
	// A row that makes one user another's heir, or names a role out of place, gives nothing.
	for _, m := range []store.Member{{NSID: 1, UserID: 2, Role: "u:1"}, {NSID: 1, UserID: 2, Role: "r:admin"}, {NSID: 1, UserID: 2, Role: "platform-admin"}, {NSID: 0, UserID: 2, Role: RoleAdmin}, {NSID: -1, UserID: 2, Role: RoleAdmin}, {NSID: 1, UserID: 2}} {
		rows, odd := groupings([]store.User{{ID: 1, Status: store.UserActive}, {ID: 2, Status: store.UserActive}}, []store.Member{m})
		require.Empty(t, rows, "%v", m)
		require.Equal(t, 1, odd)
	}
	rows, odd := groupings([]store.User{{ID: 1, Status: store.UserActive, PlatformRole: RoleDeveloper}}, nil)
	require.Empty(t, rows)
	require.Equal(t, 1, odd)
	require.Error(t, (&adapter{rows: []grouping{{"r:admin", "r:admin", "n:1"}}}).LoadPolicy(e.GetModel()))
}

func TestCasbinNeverWrites_TRBAC2_TRBAC3(t *testing.T) {
	_, e := flat(t, first(oneOfEach()), second(oneOfEach()))
	require.ErrorIs(t, e.SavePolicy(), errReadOnly)
	_, err := e.AddPolicy("r:auditor", "job", "update")
	require.ErrorIs(t, err, errReadOnly)
	_, err = e.RemoveFilteredGroupingPolicy(0, "u:3")
	require.ErrorIs(t, err, errReadOnly)
	for _, file := range []string{"auth.go", "policy.go", "login.go", "session.go", "setup.go", "token.go"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, symbol := range []string{"CachedEnforcer", ".SavePolicy(", ".RemoveFiltered", "AddNamedDomainMatchingFunc", "keyMatch"} {
			require.NotContains(t, string(text), symbol, file)
		}
	}
}

func TestRightsProperties_TRBAC(t *testing.T) {
	type given struct {
		users   []store.User
		members []store.Member
	}
	draw := rapid.Custom(func(t *rapid.T) given {
		var g given
		for id := range rapid.Int64Range(1, 4).Draw(t, "users") {
			g.users = append(g.users, store.User{
				ID: id + 1, AuthVersion: 1,
				Status:       rapid.SampledFrom([]string{store.UserActive, store.UserActive, store.UserSuspended}).Draw(t, "status"),
				PlatformRole: rapid.SampledFrom([]string{"", "", "", PlatformAdmin, PlatformAuditor, "r:admin"}).Draw(t, "platform"),
			})
			for ns := range int64(3) {
				if role := rapid.SampledFrom(append([]string{"", "", "u:1"}, namespaceRoles...)).Draw(t, "role"); role != "" {
					g.members = append(g.members, store.Member{NSID: ns + 1, UserID: id + 1, Role: role})
				}
			}
		}
		return g
	})
	rapid.Check(t, func(t *rapid.T) {
		g := draw.Draw(t, "given")
		s, _ := flat(t, g.users, g.members)
		for _, u := range g.users {
			for ns := int64(-1); ns < 5; ns++ {
				role := ""
				for _, m := range g.members {
					if m.UserID == u.ID && m.NSID == ns {
						role = m.Role
					}
				}
				for _, p := range all {
					got := may(s, u.ID, ns, p)
					if got && u.Status != store.UserActive {
						t.Fatalf("suspended user %d may %s", u.ID, p)
					}
					if got && !NamespaceRole(role) && !PlatformRole(u.PlatformRole) {
						t.Fatalf("user %d may %s in %d without a role", u.ID, p, ns)
					}
				}
			}
			if may(s, u.ID, 1, "job.destroy") || may(s, u.ID, 1, "") {
				t.Fatal("a right that does not exist")
			}
		}
		if len(g.members) == 0 {
			return
		}
		// Taking a membership away takes exactly what only it gave; giving it back never removes a right.
		i := rapid.IntRange(0, len(g.members)-1).Draw(t, "removed")
		gone := g.members[i]
		rest := append(append([]store.Member{}, g.members[:i]...), g.members[i+1:]...)
		less, _ := flat(t, g.users, rest)
		for _, u := range g.users {
			for ns := range int64(5) {
				for _, p := range all {
					before, after := may(s, u.ID, ns, p), may(less, u.ID, ns, p)
					if after && !before {
						t.Fatalf("user %d: removing %v gave %s in %d", u.ID, gone, p, ns)
					}
					if before != after && (u.ID != gone.UserID || ns != gone.NSID) {
						t.Fatalf("user %d: removing %v took %s in %d", u.ID, gone, p, ns)
					}
					if ns == gone.NSID && u.ID == gone.UserID && after {
						if _, platform := less.rights(Principal{UserID: u.ID, AuthVersion: 1}, ns, p); !platform {
							t.Fatalf("user %d keeps %s in %d without a role", u.ID, p, ns)
						}
					}
				}
			}
		}
	})
}

func TestPlatformRoleActsInNamespacesMarked(t *testing.T) {
	w := newWorld(t)
	root := w.as(w.user("root", PlatformAdmin, 5, RoleDeveloper))
	dev := w.as(w.user("dev", "", 5, RoleDeveloper))
	require.True(t, w.Allowed(root, 9, JobUpdate))
	require.True(t, w.ActsAsPlatform(root, 9, JobUpdate))
	require.False(t, w.ActsAsPlatform(root, 5, JobUpdate), "there he is a developer himself")
	require.True(t, w.ActsAsPlatform(root, 5, EgressUpdate), "which a developer may not")
	require.False(t, w.ActsAsPlatform(root, 0, UserCreate), "the platform is no namespace")
	require.False(t, w.ActsAsPlatform(dev, 9, JobUpdate))
	require.False(t, w.Allowed(dev, 0, JobUpdate), "a namespace's role says nothing about the platform")
	require.False(t, w.Allowed(root, 9, UserCreate), "nor is the platform's own asked in a namespace")

	platform, in := w.Roles(root)
	require.Equal(t, PlatformAdmin, platform)
	require.Equal(t, map[int64]string{5: RoleDeveloper}, in)
	platform, in = w.Roles(dev)
	require.Empty(t, platform)
	require.Equal(t, map[int64]string{5: RoleDeveloper}, in)
	require.Len(t, w.Permissions(root, 0), len(all))
	require.IsNonDecreasing(t, names(w.Permissions(dev, 5)))
	require.Contains(t, w.Permissions(dev, 5), JobUpdate)
	require.Empty(t, w.Permissions(dev, 6))
	require.NotNil(t, w.Permissions(dev, 6))

	platform, in = w.Roles(Principal{UserID: 99, AuthVersion: 1})
	require.Empty(t, platform)
	require.Empty(t, in)
	require.False(t, New(Config{}).Allowed(root, 5, JobRead), "nothing is allowed before Load")
}

func names(list []Permission) (out []string) {
	for _, p := range list {
		out = append(out, string(p))
	}
	return out
}

func TestRevokedRightsEndOnOtherServers_TRBAC4(t *testing.T) {
	a := newWorld(t)
	b := newWorldIn(t, a.dir, a.clock)
	u := a.user("ada", "", 3, RoleAdmin)
	p := a.as(u)
	require.False(t, b.Allowed(p, 3, JobRead), "b has not looked yet")
	require.NoError(t, b.Sync(t.Context()))
	require.True(t, b.Allowed(p, 3, JobRead))

	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- b.Run(ctx) }()
	a.exec("DELETE FROM member WHERE user_id = ?", u.ID)
	require.Eventually(t, func() bool { return !b.Allowed(p, 3, JobRead) }, 2*time.Second, 10*time.Millisecond)
	stop()
	require.NoError(t, <-done)
}

func TestUnreadableRightsKeepTheOld_TRBAC5(t *testing.T) {
	w := newWorld(t)
	u := w.user("ada", "", 3, RoleAdmin)
	tokens, _ := w.login("ada")
	p := w.as(u)
	before := w.snapshot.Load()
	// Users can be read, members can not: half-way.
	w.exec("UPDATE user_account SET display_name = 'changed'")
	w.exec("ALTER TABLE member RENAME TO member_gone")
	require.Error(t, w.Sync(t.Context()))
	require.Error(t, w.Sync(t.Context()))
	require.Same(t, before, w.snapshot.Load())
	require.True(t, w.Allowed(p, 3, JobUpdate))
	require.Equal(t, 1, strings.Count(w.log.String(), "rights not read"), "told once, not every second")

	w.up = 30 * time.Second
	require.True(t, w.Fresh())
	w.up = 30*time.Second + 1
	require.False(t, w.Fresh())
	_, err := w.Verify(tokens.Access)
	require.NoError(t, err, "reading goes on for a while")
	w.up = 60*time.Second + 1
	_, err = w.Verify(tokens.Access)
	require.ErrorIs(t, err, store.ErrUnavailable)

	w.exec("ALTER TABLE member_gone RENAME TO member")
	require.NoError(t, w.Sync(t.Context()))
	require.True(t, w.Fresh())
	require.Contains(t, w.log.String(), "rights read again")
	got, err := w.Verify(tokens.Access)
	require.NoError(t, err)
	require.Equal(t, "changed", got.DisplayName)
}

func BenchmarkAllowed(b *testing.B) {
	users, members := oneOfEach()
	s, _ := flat(b, users, members)
	a := New(Config{})
	a.snapshot.Store(s)
	p := Principal{UserID: 4, AuthVersion: 1}
	b.ReportAllocs()
	for b.Loop() {
		a.Allowed(p, 1, JobUpdate)
	}
}
