package api

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"

	"github.com/ax-scheduler/ax/internal/auth"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/server/httpx"
)

type actorView struct {
	Type string `json:"type"`
	ID   string `json:"id"`
	Name string `json:"name"`
}

type objectView struct {
	Type string `json:"type"`
	ID   string `json:"id"`
	Name string `json:"name"`
}

type auditView struct {
	ID        string           `json:"id"`
	At        string           `json:"at"`
	Namespace string           `json:"namespace" doc:"empty = the platform"`
	Actor     actorView        `json:"actor"`
	IP        string           `json:"ip"`
	Action    string           `json:"action"`
	Object    objectView       `json:"object"`
	Outcome   string           `json:"outcome"`
	RequestID string           `json:"requestId"`
	Before    *json.RawMessage `json:"before,omitempty"`
	After     *json.RawMessage `json:"after,omitempty"`
	Diff      []diffView       `json:"diff"`
}

type diffView struct {
	Op    string           `json:"op"`
	Path  string           `json:"path"`
	From  *json.RawMessage `json:"from,omitempty"`
	Value *json.RawMessage `json:"value,omitempty"`
}

// AuditQuery is what a caller wants to see of the trail.
type AuditQuery struct {
	Actor   string `query:"actor" maxLength:"128"`
	Action  string `query:"action" maxLength:"64"`
	Object  string `query:"object" maxLength:"128" doc:"id or name"`
	Outcome string `query:"outcome" maxLength:"16" doc:"success or failure"`
	Request string `query:"requestId" maxLength:"64"`
	IP      string `query:"ip" maxLength:"64" doc:"the address that the request came from"`
	From    string `query:"from"`
	To      string `query:"to"`
}

// AuditFilter is AuditQuery over one namespace, or all.
type AuditFilter struct {
	AuditQuery
	Namespace string `query:"namespace" maxLength:"64"`
}

type auditInput struct {
	Page
	AuditFilter
}

type auditExportInput struct {
	AuditFilter
	Format string `query:"format" enum:"jsonl,csv,syslog" default:"jsonl" doc:"JSON lines, CSV, or RFC 5424 lines"`
}

// auditPage is how many entries an export reads at a time.
const auditPage = 500

func (a *API) audit() {
	add(a, http.MethodGet, "/api/v1/audit", "listAudit", "The audit trail of the namespaces where I may read it, newest first", self(), a.listAudit)
	add(a, http.MethodGet, "/api/v1/audit/export", "exportAudit", "The audit trail as a file, newest first", onPlatform(auth.AuditExport), a.exportAudit)
	add(a, http.MethodGet, "/api/v1/namespaces/{namespace}/audit/export", "exportNamespaceAudit", "A namespace's audit trail as a file, newest first", inNamespace(auth.AuditExport), a.exportNamespaceAudit)
}

// sought makes a filter of what a caller may see by a right; names are those of the namespaces.
func (a *API) sought(ctx context.Context, in AuditFilter, right auth.Permission) (f store.AuditFilter, names map[int64]string, err error) {
	p := httpx.CallerOf(ctx).Principal
	all, err := a.Store.Namespaces(ctx)
	if err != nil {
		return f, nil, err
	}
	f = store.AuditFilter{Actor: in.Actor, Action: in.Action, Object: in.Object, Outcome: in.Outcome, Request: in.Request, IP: in.IP, NS: []int64{}}
	names = map[int64]string{}
	for _, n := range all {
		names[n.ID] = n.Name
		if a.Auth.Allowed(p, n.ID, right) && (in.Namespace == "" || in.Namespace == n.Name) {
			f.NS = append(f.NS, n.ID)
		}
	}
	if a.Auth.Allowed(p, 0, right) && in.Namespace == "" {
		f.NS = append(f.NS, 0)
	}
	if in.Namespace != "" && len(f.NS) == 0 {
		return f, nil, store.ErrNotFound
	}
	if f.From, err = parseTime(ctx, "from", in.From); err != nil {
		return f, nil, err
	}
	f.To, err = parseTime(ctx, "to", in.To)
	return f, names, err
}

func viewOfEntry(e store.AuditEntry, names map[int64]string) auditView {
	v := auditView{
		ID: id(e.ID), At: stamp(e.At), Namespace: names[e.NSID], Actor: actorView{e.ActorType, e.ActorID, e.ActorName}, IP: e.IP, Action: e.Action,
		Object: objectView{e.ObjectType, e.ObjectID, e.ObjectName}, Outcome: e.Outcome, RequestID: e.RequestID, Before: raw(e.BeforeJSON), After: raw(e.AfterJSON), Diff: []diffView{},
	}
	if e.DiffJSON != nil {
		_ = json.Unmarshal([]byte(*e.DiffJSON), &v.Diff)
	}
	return v
}

func (a *API) listAudit(ctx context.Context, in *auditInput) (*body[list[auditView]], error) {
	f, names, err := a.sought(ctx, in.AuditFilter, auth.AuditRead)
	if err != nil {
		return nil, err
	}
	f.Limit = in.Limit + 1
	if err := openCursor(ctx, in.Cursor, &f.Before); err != nil {
		return nil, err
	}
	rows, err := a.Store.AuditTrail(ctx, f)
	if err != nil {
		return nil, err
	}
	out := list[auditView]{Items: []auditView{}}
	if len(rows) > in.Limit {
		rows = rows[:in.Limit]
		out.NextCursor = cursor(rows[len(rows)-1].ID)
	}
	for _, e := range rows {
		out.Items = append(out.Items, viewOfEntry(e, names))
	}
	return &body[list[auditView]]{out}, nil
}

type namespaceExportInput struct {
	NamespacePath
	AuditQuery
	Format string `query:"format" enum:"jsonl,csv,syslog" default:"jsonl" doc:"JSON lines, CSV, or RFC 5424 lines"`
}

func (a *API) exportNamespaceAudit(ctx context.Context, in *namespaceExportInput) (*huma.StreamResponse, error) {
	filter := AuditFilter{AuditQuery: in.AuditQuery, Namespace: in.Namespace}
	return a.exportAudit(ctx, &auditExportInput{AuditFilter: filter, Format: in.Format})
}

func (a *API) exportAudit(ctx context.Context, in *auditExportInput) (*huma.StreamResponse, error) {
	f, names, err := a.sought(ctx, in.AuditFilter, auth.AuditExport)
	if err != nil {
		return nil, err
	}
	// What leaves with it is in the trail too.
	entry, err := a.entry(ctx, auth.AuditExport, "audit", 0, in.Namespace, nil, map[string]any{"format": in.Format, "filter": in.AuditFilter})
	if err != nil {
		return nil, err
	}
	if len(f.NS) == 1 {
		entry.NSID = f.NS[0]
	}
	if err := a.Store.Audit(ctx, entry); err != nil {
		return nil, err
	}
	f.Limit = auditPage
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		kind := map[string]string{"jsonl": "application/x-ndjson", "csv": "text/csv; charset=utf-8", "syslog": "text/plain; charset=utf-8"}[in.Format]
		hc.SetHeader("Content-Type", kind)
		hc.SetHeader("Content-Disposition", `attachment; filename="audit.`+map[string]string{"jsonl": "jsonl", "csv": "csv", "syslog": "log"}[in.Format]+`"`)
		hc.SetHeader("Cache-Control", "no-store")
		gc := humagin.Unwrap(hc)
		control := http.NewResponseController(gc.Writer)
		out := bufio.NewWriter(gc.Writer)
		write := a.auditWriter(in.Format, out)
		for {
			_ = control.SetWriteDeadline(time.Now().Add(downloadFor))
			rows, err := a.Store.AuditTrail(hc.Context(), f)
			if err != nil {
				// The status is sent already; a connection that breaks off says that it is not whole.
				a.Log.WarnContext(hc.Context(), "export of the audit trail broke off", slog.String("err", err.Error()))
				panic(http.ErrAbortHandler)
			}
			for _, e := range rows {
				if write(viewOfEntry(e, names)) != nil {
					return
				}
				f.Before = e.ID
			}
			if out.Flush() != nil || len(rows) < f.Limit {
				return
			}
		}
	}}, nil
}

// auditWriter writes entries in a format.
func (a *API) auditWriter(format string, w io.Writer) func(auditView) error {
	text := func(v any) string {
		raw, _ := json.Marshal(v)
		return string(raw)
	}
	switch format {
	case "csv":
		c := csv.NewWriter(w)
		_ = c.Write([]string{"id", "at", "namespace", "actorType", "actorId", "actor", "ip", "action", "objectType", "objectId", "object", "outcome", "requestId", "before", "after", "diff"})
		return func(v auditView) error {
			cells := []string{v.ID, v.At, v.Namespace, v.Actor.Type, v.Actor.ID, v.Actor.Name, v.IP, v.Action, v.Object.Type, v.Object.ID, v.Object.Name, v.Outcome, v.RequestID, textOf(v.Before), textOf(v.After), text(v.Diff)}
			for i := range cells {
				cells[i] = plainCell(cells[i])
			}
			err := c.Write(cells)
			c.Flush()
			return err
		}
	case "syslog":
		return func(v auditView) error {
			// 110: facility log audit, severity informational. What is told is JSON, with no line break inside.
			_, err := fmt.Fprintf(w, "<110>1 %s - ax-server - %s - %s\n", v.At, strings.ReplaceAll(v.Action, " ", "_"), text(v))
			return err
		}
	}
	e := json.NewEncoder(w)
	return func(v auditView) error { return e.Encode(v) }
}

func textOf(v *json.RawMessage) string {
	if v == nil {
		return ""
	}
	return string(*v)
}

// plainCell keeps a spreadsheet from taking a text for a formula.
func plainCell(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return s
}
