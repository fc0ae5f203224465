package auth

import (
	"slices"
	"strings"
)

// Permission is one right, "object.action". Both words come from closed lists, and every
// permission is a constant of this package: a route names the one it asks for.
type Permission string

// The permissions. log.read is apart from batch.read since logs leak secrets, job.run apart
// from job.update, and export apart from read. Nothing reads a secret or writes the audit trail.
const (
	NamespaceRead   Permission = "namespace.read"
	NamespaceCreate Permission = "namespace.create"
	NamespaceUpdate Permission = "namespace.update"
	MemberRead      Permission = "member.read"
	MemberCreate    Permission = "member.create"
	MemberUpdate    Permission = "member.update"
	MemberDelete    Permission = "member.delete"
	AppRead         Permission = "app.read"
	AppCreate       Permission = "app.create"
	AppDelete       Permission = "app.delete"
	AppKeyRead      Permission = "appkey.read" // which keys there are, not the keys
	AppKeyCreate    Permission = "appkey.create"
	AppKeyRotate    Permission = "appkey.rotate"
	AppKeyDelete    Permission = "appkey.delete"
	ExecutorRead    Permission = "executor.read"
	ExecutorPause   Permission = "executor.pause" // drain
	JobRead         Permission = "job.read"
	JobCreate       Permission = "job.create"
	JobUpdate       Permission = "job.update"
	JobDelete       Permission = "job.delete"
	JobRun          Permission = "job.run"
	JobPause        Permission = "job.pause" // and resume
	EventCreate     Permission = "event.create"
	TokenRead       Permission = "token.read" // which tokens of programs there are
	TokenCreate     Permission = "token.create"
	TokenDelete     Permission = "token.delete"
	JobImport       Permission = "job.import"
	JobExport       Permission = "job.export"
	CalendarRead    Permission = "calendar.read"
	CalendarWrite   Permission = "calendar.write" // changes every job that uses it
	SecretList      Permission = "secret.list"    // names and versions: nobody reads a value
	SecretWrite     Permission = "secret.write"
	LimitRead       Permission = "limit.read"
	LimitWrite      Permission = "limit.write"
	BatchRead       Permission = "batch.read"
	BatchCancel     Permission = "batch.cancel"
	BatchRetry      Permission = "batch.retry"
	LogRead         Permission = "log.read"
	AlertRead       Permission = "alert.read"
	AlertUpdate     Permission = "alert.update" // acknowledge
	ChannelRead     Permission = "channel.read"
	ChannelUpdate   Permission = "channel.update" // where alerts go
	AuditRead       Permission = "audit.read"
	AuditExport     Permission = "audit.export"
	QuotaRead       Permission = "quota.read"
	QuotaUpdate     Permission = "quota.update"
	EgressRead      Permission = "egress.read"
	EgressUpdate    Permission = "egress.update"
	UserRead        Permission = "user.read"
	UserCreate      Permission = "user.create"
	UserUpdate      Permission = "user.update"
	SystemRead      Permission = "system.read"
	SystemUpdate    Permission = "system.update"
)

// all lists every permission, by object. Its order is that of the bits of a snapshot.
var all = []Permission{ //nolint:gochecknoglobals // constant
	NamespaceRead, NamespaceCreate, NamespaceUpdate,
	MemberRead, MemberCreate, MemberUpdate, MemberDelete,
	AppRead, AppCreate, AppDelete,
	AppKeyRead, AppKeyCreate, AppKeyRotate, AppKeyDelete,
	ExecutorRead, ExecutorPause,
	JobRead, JobCreate, JobUpdate, JobDelete, JobRun, JobPause, JobImport, JobExport,
	EventCreate,
	TokenRead, TokenCreate, TokenDelete,
	CalendarRead, CalendarWrite,
	SecretList, SecretWrite,
	LimitRead, LimitWrite,
	BatchRead, BatchCancel, BatchRetry,
	LogRead,
	AlertRead, AlertUpdate,
	ChannelRead, ChannelUpdate,
	AuditRead, AuditExport,
	QuotaRead, QuotaUpdate,
	EgressRead, EgressUpdate,
	UserRead, UserCreate, UserUpdate,
	SystemRead, SystemUpdate,
}

// Known tells whether p is one of the constants.
func (p Permission) Known() bool {
	_, ok := permissionBit[p]
	return ok
}

// Mutates tells whether p changes something, for servers that refuse changes while they
// can not read rights.
func (p Permission) Mutates() bool {
	_, action, _ := strings.Cut(string(p), ".")
	return action != "read" && action != "list" && action != "export"
}

// PlatformOnly tells whether p is asked of the platform (namespace 0) and never within a
// namespace.
func (p Permission) PlatformOnly() bool {
	i, ok := permissionBit[p]
	return ok && platformOnly[i]
}

// Roles within a namespace, as stored in store.Member.
const (
	RoleAdmin     = "admin"
	RoleDeveloper = "developer"
	RoleOperator  = "operator"
	RoleReadOnly  = "read-only"
	RoleAuditor   = "auditor"
)

// Roles of the platform, as stored in store.User.
const (
	PlatformAdmin   = "admin"
	PlatformAuditor = "auditor"
)

// NamespaceRole tells whether role can be given in a namespace.
func NamespaceRole(role string) bool { return slices.Contains(namespaceRoles, role) }

// PlatformRole tells whether role can be given for the platform. No role is "".
func PlatformRole(role string) bool { return role == PlatformAdmin || role == PlatformAuditor }

var namespaceRoles = []string{RoleAdmin, RoleDeveloper, RoleOperator, RoleReadOnly, RoleAuditor} //nolint:gochecknoglobals // constant

// A role is one closed role as the policy knows it. The platform's roles have names of their
// own there, so that an administrator of a namespace is not one of the platform.
type role struct {
	name     string // in casbin, after "r:"
	stored   string // in the database
	platform bool
	may      []Permission
}

func roles() []role {
	view := []Permission{NamespaceRead, MemberRead, AppRead, ExecutorRead, JobRead, CalendarRead, SecretList, LimitRead, BatchRead, AlertRead, QuotaRead, EgressRead}
	readOnly := slices.Concat(view, []Permission{LogRead})
	operator := slices.Concat(readOnly, []Permission{JobRun, EventCreate, JobPause, BatchCancel, BatchRetry, ExecutorPause, LimitWrite, AlertUpdate})
	// Who defines jobs may stop them and their batches; draining executors and acknowledging
	// alerts are an operator's.
	developer := slices.Concat(readOnly, []Permission{JobCreate, JobUpdate, JobDelete, JobImport, JobExport, CalendarWrite, SecretWrite, JobRun, EventCreate, JobPause, BatchCancel, BatchRetry})
	auditor := slices.Concat(view, []Permission{AuditRead, AuditExport})
	admin := slices.Concat(operator, developer, auditor, []Permission{
		NamespaceUpdate, MemberCreate, MemberUpdate, MemberDelete, AppCreate, AppDelete,
		AppKeyRead, AppKeyCreate, AppKeyRotate, AppKeyDelete, ChannelRead, ChannelUpdate,
		TokenRead, TokenCreate, TokenDelete,
	})
	platformAuditor := slices.Concat(auditor, []Permission{AppKeyRead, TokenRead, ChannelRead, UserRead, SystemRead})
	return []role{
		{"platform-admin", PlatformAdmin, true, all},
		{"platform-auditor", PlatformAuditor, true, platformAuditor},
		{"admin", RoleAdmin, false, distinct(admin)},
		{"developer", RoleDeveloper, false, developer},
		{"operator", RoleOperator, false, operator},
		{"read-only", RoleReadOnly, false, readOnly},
		{"auditor", RoleAuditor, false, auditor},
	}
}

func distinct(list []Permission) []Permission {
	slices.Sort(list)
	return slices.Compact(list)
}

// closed are the roles; the place of one is its bit in a snapshot.
var closed = roles() //nolint:gochecknoglobals // constant

var permissionBit = func() map[Permission]int { //nolint:gochecknoglobals // constant
	m := make(map[Permission]int, len(all))
	for i, p := range all {
		m[p] = i
	}
	return m
}()

// platformOnly says it for each permission in the order of all.
var platformOnly = func() []bool { //nolint:gochecknoglobals // constant
	out := make([]bool, len(all))
	for i, p := range all {
		out[i] = p == NamespaceCreate || strings.HasPrefix(string(p), "user.") || strings.HasPrefix(string(p), "system.")
	}
	return out
}()
