package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/ax-scheduler/ax/internal/audit"
	"github.com/ax-scheduler/ax/internal/auth"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/server/httpx"
)

// VersionView is a version without its definition.
type VersionView struct {
	Version   int64  `json:"version"`
	Author    string `json:"author"`
	Comment   string `json:"comment"`
	CreatedAt string `json:"createdAt"`
}

type versionChange struct {
	Op   string `json:"op" enum:"add,remove,replace"`
	Path string `json:"path" doc:"JSON pointer into the definition"`
	From any    `json:"from,omitempty"`
	To   any    `json:"value,omitempty"`
}

type wholeVersionView struct {
	VersionView
	Definition map[string]any  `json:"definition" doc:"in the form that a job is written in"`
	Against    int64           `json:"against" doc:"the version that changes are told from; 0 = there is none"`
	Changes    []versionChange `json:"changes"`
}

type versionsInput struct {
	JobPath
	Before int64 `query:"before" minimum:"0" doc:"only older ones; 0 = from the newest on"`
	Limit  int   `query:"limit" minimum:"1" maximum:"200" default:"50"`
}

type versionInput struct {
	JobPath
	Version int64 `path:"version" minimum:"1"`
	Against int64 `query:"against" minimum:"0" doc:"the version to compare with; 0 = the one before"`
}

type rollbackInput struct {
	JobPath
	Body struct {
		To      int64  `json:"to" minimum:"1" doc:"the version whose definition is wanted again"`
		Version int64  `json:"version" doc:"the version that was read"`
		Comment string `json:"comment,omitempty" maxLength:"500"`
	}
}

func (a *API) versions() {
	const job = "/api/v1/namespaces/{namespace}/jobs/{id}"
	add(a, http.MethodGet, job+"/versions", "listVersions", "Versions of a job's definition, newest first", inNamespace(auth.JobRead), a.listVersions)
	add(a, http.MethodGet, job+"/versions/{version}", "getVersion", "One version, and what changed from another", inNamespace(auth.JobRead), a.getVersion)
	add(a, http.MethodPost, job+"/rollback", "rollbackJob", "Make an earlier definition the newest version", inNamespace(auth.JobUpdate), a.rollback)
}

func (a *API) listVersions(ctx context.Context, in *versionsInput) (*body[list[VersionView]], error) {
	j, err := a.jobOf(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	found, err := a.Store.Versions(ctx, j.ID, in.Before, in.Limit+1)
	if err != nil {
		return nil, err
	}
	out := list[VersionView]{Items: []VersionView{}}
	for i, v := range found {
		if i == in.Limit {
			out.NextCursor = strconv.FormatInt(out.Items[i-1].Version, 10)
			break
		}
		out.Items = append(out.Items, viewOfVersion(v))
	}
	return &body[list[VersionView]]{out}, nil
}

func viewOfVersion(v store.JobVersion) VersionView {
	return VersionView{Version: v.Version, Author: v.Author, Comment: v.Comment, CreatedAt: stamp(v.CreatedAt)}
}

// defined is a version in the form that a job is written in.
func (a *API) defined(v store.JobVersion) map[string]any {
	d := a.told(store.Job{Definition: v.Definition})
	delete(d, "enabled") // is not of the definition
	return d
}

func (a *API) getVersion(ctx context.Context, in *versionInput) (*body[wholeVersionView], error) {
	j, err := a.jobOf(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	v, err := a.Store.VersionOf(ctx, j.ID, in.Version)
	if err != nil {
		return nil, err
	}
	out := wholeVersionView{VersionView: viewOfVersion(v), Definition: a.defined(v), Changes: []versionChange{}, Against: in.Against}
	if out.Against == 0 {
		out.Against = in.Version - 1
	}
	if out.Against == 0 {
		return &body[wholeVersionView]{out}, nil
	}
	other, err := a.Store.VersionOf(ctx, j.ID, out.Against)
	if errors.Is(err, store.ErrNotFound) {
		return nil, httpx.Invalid(ctx, "unknown_version", "against", strconv.FormatInt(out.Against, 10), "There is no such version of this job.", "该任务没有此版本。")
	}
	if err != nil {
		return nil, err
	}
	_, _, diff, err := audit.Tell(a.defined(other), out.Definition)
	if err != nil {
		return nil, err
	}
	if diff != nil {
		err = json.Unmarshal([]byte(*diff), &out.Changes)
	}
	return &body[wholeVersionView]{out}, err
}

func (a *API) rollback(ctx context.Context, in *rollbackInput) (*body[jobView], error) {
	j, err := a.jobOf(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	v, err := a.Store.VersionOf(ctx, j.ID, in.Body.To)
	if errors.Is(err, store.ErrNotFound) {
		return nil, httpx.Invalid(ctx, "unknown_version", "to", strconv.FormatInt(in.Body.To, 10), "There is no such version of this job.", "该任务没有此版本。")
	}
	if err != nil {
		return nil, err
	}
	// It is written as if somebody had typed it now: what it names must still be there, and calendars are as they are now.
	raw, err := json.Marshal(a.defined(v))
	if err != nil {
		return nil, err
	}
	update := updateJobInput{JobPath: in.JobPath}
	if err := json.Unmarshal(raw, &update.Body); err != nil {
		return nil, fmt.Errorf("definition of version %d: %w", in.Body.To, err)
	}
	update.Body.Version, update.Body.Comment = in.Body.Version, in.Body.Comment
	if update.Body.Comment == "" {
		update.Body.Comment = fmt.Sprintf("version %d again", in.Body.To)
	}
	return a.updateJob(ctx, &update)
}
