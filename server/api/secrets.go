package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/ax-scheduler/ax/internal/auth"
	"github.com/ax-scheduler/ax/internal/clock"
	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/message"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/server/httpx"
)

// secretView is what may be known of a secret: never its value.
type secretView struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Version     int64  `json:"version" doc:"how often a value was written"`
	Jobs        int    `json:"jobs" doc:"how many name it in their parameters"`
	UpdatedAt   string `json:"updatedAt"`
	UpdatedBy   string `json:"updatedBy"`
}

// SecretPath is a secret of a namespace.
type SecretPath struct {
	NamespacePath
	Name string `path:"name" maxLength:"64"`
}

type secretListInput struct {
	NamespacePath
	Page
}

type putSecretInput struct {
	SecretPath
	Body struct {
		Value       string `json:"value" doc:"6 to 4096 bytes of UTF-8; it can not be read again"`
		Description string `json:"description,omitempty" maxLength:"1000"`
		Version     int64  `json:"version,omitempty" minimum:"0" doc:"the version that was seen; 0 makes a new secret"`
	}
}

type deleteSecretInput struct {
	SecretPath
	Version int64 `query:"version" doc:"the version that was seen; 0 = whatever it is"`
}

func (a *API) secrets() {
	const secrets = "/api/v1/namespaces/{namespace}/secrets"
	read, write := inNamespace(auth.SecretList), inNamespace(auth.SecretWrite)
	add(a, http.MethodGet, secrets, "listSecrets", "Secrets of a namespace, without their values", read, a.listSecrets)
	add(a, http.MethodGet, secrets+"/{name}", "getSecret", "One secret, without its value", read, a.getSecret)
	add(a, http.MethodPut, secrets+"/{name}", "putSecret", "Make a secret or give it another value; runs that start from now on get it", write, a.putSecret)
	add(a, http.MethodDelete, secrets+"/{name}", "deleteSecret", "Delete a secret that no job names", write, a.deleteSecret, func(op *huma.Operation) { op.DefaultStatus = http.StatusNoContent })
}

func secretOf(c store.Secret) secretView {
	return secretView{Name: c.Name, Description: c.Description, Version: c.Version, Jobs: c.Jobs, UpdatedAt: stamp(c.UpdatedAt), UpdatedBy: c.UpdatedBy}
}

// toldSecret is what the audit keeps of a secret: whether its value changed can be seen, what it is not.
func toldSecret(c store.Secret) any {
	return map[string]any{"description": c.Description, "value": map[string]any{"len": c.Length, "mac": c.Mark}}
}

func (a *API) listSecrets(ctx context.Context, in *secretListInput) (*body[list[secretView]], error) {
	after := ""
	if err := openCursor(ctx, in.Cursor, &after); err != nil {
		return nil, err
	}
	all, err := a.Store.SecretList(ctx, nsOf(ctx).ID, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	out := list[secretView]{Items: []secretView{}}
	if len(all) > in.Limit {
		all = all[:in.Limit]
		out.NextCursor = cursor(all[len(all)-1].Name)
	}
	for _, c := range all {
		out.Items = append(out.Items, secretOf(c))
	}
	return &body[list[secretView]]{out}, nil
}

// secret reads the secret of a path; a text that can be no name is not looked up.
func (a *API) secret(ctx context.Context, name string) (store.Secret, error) {
	if job.ValidName("name", name) != nil {
		return store.Secret{}, store.ErrNotFound
	}
	return a.Store.Secret(ctx, nsOf(ctx).ID, name)
}

func (a *API) getSecret(ctx context.Context, in *SecretPath) (*body[secretView], error) {
	c, err := a.secret(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	return &body[secretView]{secretOf(c)}, nil
}

func (a *API) putSecret(ctx context.Context, in *putSecretInput) (*body[secretView], error) {
	if bad := job.ValidName("name", in.Name); bad != nil {
		return nil, bad
	}
	value := in.Body.Value
	switch n := len(value); {
	case !utf8.ValidString(value):
		return nil, httpx.Invalid(ctx, "not_utf8", "value", "", "This is not valid UTF-8 text.", "不是有效的 UTF-8 文本。")
	case n < job.MinSecret || n > job.MaxSecret:
		return nil, httpx.Invalid(ctx, "out_of_range", "value", strconv.Itoa(n), fmt.Sprintf("A secret has %d to %d bytes; got %d. Shorter ones could not be hidden in output.", job.MinSecret, job.MaxSecret, n),
			fmt.Sprintf("密钥长度须为 %d 至 %d 字节，当前 %d 字节；过短则无法在输出中遮盖。", job.MinSecret, job.MaxSecret, n))
	case strings.TrimSpace(value) != value:
		return nil, httpx.Invalid(ctx, "blank_at_end", "value", "", "A secret does not begin or end with a blank or a line break: that is nearly always a slip of copying.", "密钥首尾不能是空白或换行：这几乎总是复制时的疏忽。")
	}
	ns := nsOf(ctx)
	var before any
	if in.Body.Version > 0 {
		old, err := a.secret(ctx, in.Name)
		if err != nil {
			return nil, err
		}
		if old.Version != in.Body.Version {
			return nil, store.ErrStale
		}
		before = toldSecret(old)
	}
	version, err := a.Secrets.Seal(ns.ID, in.Name, in.Body.Version+1, value)
	if err != nil {
		return nil, err
	}
	c := store.Secret{SecretVersion: version, Description: in.Body.Description, UpdatedAt: clock.Millis(a.Clock), UpdatedBy: httpx.CallerOf(ctx).Principal.Name}
	entry, err := a.entry(ctx, auth.SecretWrite, "secret", 0, in.Name, before, toldSecret(c))
	if err != nil {
		return nil, err
	}
	entry.ObjectID = in.Name
	if err := a.inBucket(ctx, ns.Bucket, func(b *store.Bucket) error { return b.WriteSecret(c, entry) }); err != nil {
		return nil, err
	}
	return a.getSecret(ctx, &in.SecretPath)
}

func (a *API) deleteSecret(ctx context.Context, in *deleteSecretInput) (*empty, error) {
	c, err := a.secret(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	if in.Version != 0 && in.Version != c.Version {
		return nil, store.ErrStale
	}
	entry, err := a.entry(ctx, auth.SecretWrite, "secret", 0, in.Name, toldSecret(c), nil)
	if err != nil {
		return nil, err
	}
	entry.ObjectID = in.Name
	var users []int64
	err = a.inBucket(ctx, nsOf(ctx).Bucket, func(b *store.Bucket) error {
		var err error
		if users, err = b.SecretUsers(c.NS, in.Name); err != nil || len(users) > 0 {
			return err
		}
		return b.DeleteSecret(c.NS, in.Name, c.Version, entry)
	})
	if err != nil || len(users) == 0 {
		return nil, err
	}
	names := a.jobNames(ctx, c.NS, users)
	return nil, httpx.NewProblem(ctx, http.StatusConflict, "secret_in_use", message.Text{
		EN: fmt.Sprintf("%d jobs name this secret; take it out of their parameters first: %s.", len(users), strings.Join(names, ", ")),
		ZH: fmt.Sprintf("有 %d 个任务引用此密钥，请先从其参数中移除：%s。", len(users), strings.Join(names, "、")),
	})
}

// jobNames are some jobs with their names, for a sentence.
func (a *API) jobNames(ctx context.Context, ns int64, jobs []int64) []string {
	names := make([]string, 0, maxNamed)
	for _, id := range jobs[:min(len(jobs), maxNamed)] {
		if j, err := a.Store.Job(ctx, ns, id); err == nil {
			names = append(names, fmt.Sprintf("%s (%d)", j.Definition.Name, id))
		}
	}
	return names
}

// secretsThere refuses parameters that name a secret which the namespace does not have.
func (a *API) secretsThere(ctx context.Context, params string) (*message.Invalid, error) {
	names, _ := job.SecretNames(params)
	if len(names) == 0 || len(names) > job.MaxSecrets {
		return nil, nil //nolint:nilnil // nothing to look for
	}
	found, err := a.Store.Secrets(ctx, nsOf(ctx).ID, names)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if _, ok := found[name]; !ok {
			return &message.Invalid{Code: "unknown_secret", Field: "params", Token: name, Message: message.Text{
				EN: fmt.Sprintf("There is no secret %q in this namespace; make it first.", name), ZH: fmt.Sprintf("本命名空间没有密钥“%s”，请先创建。", name),
			}}, nil
		}
	}
	return nil, nil //nolint:nilnil // all are there
}

// secretsOf refuses parameters of one run that name a secret which the job's own do not: who may run a job may not
// choose what it gets to see.
func secretsOf(defined, params string) error {
	if bad := job.ValidSecrets("params", params); bad != nil {
		return bad
	}
	own, _ := job.SecretNames(defined)
	names, _ := job.SecretNames(params)
	for _, name := range names {
		if !slices.Contains(own, name) {
			return &message.Invalid{Code: "secret_not_of_job", Field: "params", Token: name, Message: message.Text{
				EN: fmt.Sprintf("The job's own parameters do not name the secret %q; only secrets that they name are given to a run.", name),
				ZH: fmt.Sprintf("任务自身的参数没有引用密钥“%s”；运行只能得到任务参数所引用的密钥。", name),
			}}
		}
	}
	return nil
}
