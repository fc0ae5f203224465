package ax

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// What the client sends is what docs/delayed.md says, and refusals come back with their code.
func TestClientOfDelayedTasksAndEvents(t *testing.T) {
	t.Parallel()
	var got string
	status, answer := http.StatusCreated, `{"batchId":"10001-20261201080000-ab"}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		got = fmt.Sprint(r.Method, " ", r.URL.Path, " ", r.Header.Get("Authorization"), " [", r.Header.Get("Idempotency-Key"), "] ", string(raw))
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	defer server.Close()
	c, err := NewClient(ClientOptions{Server: server.URL + "/", Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	job := Job{Namespace: "pay", ID: "10001"}
	at := time.Date(2026, 12, 1, 8, 0, 0, 5e6, time.UTC)
	const pay, id = "POST /api/v1/namespaces/pay", "10001-20261201080000-ab"
	const path = pay + "/jobs/10001/delayed"
	for _, x := range []struct {
		do   func() (string, error)
		want string
	}{
		{func() (string, error) { return c.Delay(ctx, job, Task{Delay: time.Minute}) }, path + ` Bearer secret [] {"delay":"1m0s"}`},
		{func() (string, error) {
			return c.Delay(ctx, job, Task{RunAt: at, Key: "键", Payload: []int{1}, Window: time.Hour})
		}, path + ` Bearer secret [] {"key":"键","keyWindow":"1h0m0s","payload":[1],"runAt":"2026-12-01T08:00:00.005Z"}`},
		{func() (string, error) { return id, c.Cancel(ctx, job, id) }, pay + "/batches/" + id + "/cancel Bearer secret [] "},
		{func() (string, error) { return c.RunNow(ctx, job, id) }, pay + "/delayed/" + id + "/run Bearer secret [] "},
		{func() (string, error) { return c.Reschedule(ctx, job, id, at) }, pay + "/delayed/" + id + `/reschedule Bearer secret [] {"runAt":"2026-12-01T08:00:00.005Z"}`},
		{func() (string, error) { return c.Send(ctx, "10001", "e1", map[string]int{"n": 1}) }, `POST /api/v1/tasks/10001/events Bearer secret [e1] {"n":1}`},
		{func() (string, error) { return c.Send(ctx, "10001", "", nil) }, `POST /api/v1/tasks/10001/events Bearer secret [] null`},
	} {
		made, err := x.do()
		if err != nil || made != id || got != x.want {
			t.Fatalf("made %q, %v\n got %s\nwant %s", made, err, got, x.want)
		}
	}
	status, answer = http.StatusAccepted, `{"fired":false,"reason":{"code":"event_filtered"}}`
	if made, err := c.Send(ctx, "10001", "", nil); err != nil || made != "" {
		t.Fatal(made, err)
	}
	status, answer = http.StatusConflict, `{"status":409,"code":"key_taken","detail":"taken","batchId":"other"}`
	_, err = c.Delay(ctx, job, Task{Key: "k"})
	var refused *APIError
	if !errors.As(err, &refused) || refused.Code != "key_taken" || refused.BatchID != "other" || refused.Status != 409 {
		t.Fatal(err)
	}
	status, answer = http.StatusBadGateway, `<html>`
	if _, err = c.Delay(ctx, job, Task{}); !errors.As(err, &refused) || refused.Status != 502 {
		t.Fatal(err)
	}
	status, answer = http.StatusOK, `hello`
	if _, err = c.Delay(ctx, job, Task{}); err == nil {
		t.Fatal("an answer of somebody else was taken")
	}
	if _, err = c.Delay(ctx, job, Task{Delay: 1, RunAt: at}); err == nil {
		t.Fatal("both times were taken")
	}
	for _, o := range []ClientOptions{{Server: "127.0.0.1:1", Token: "x"}, {Server: server.URL}, {Server: server.URL, Token: "a b"}} {
		if _, err := NewClient(o); err == nil {
			t.Fatalf("%+v was taken", o)
		}
	}
}
