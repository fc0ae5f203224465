package ax

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Client asks an ax-server for delayed tasks and sends it events, with a person's or a program's token. It needs no
// executor in the process, and an executor needs no Client. Make it with NewClient; it is safe for concurrent use.
type Client struct {
	base  string
	token string
	http  *http.Client
}

// ClientOptions of NewClient.
type ClientOptions struct {
	// Server is the base URL.
	Server string
	// Token goes into the Authorization header.
	Token string
	// Transport is net/http's; default one with time limits.
	Transport http.RoundTripper
}

// NewClient makes a Client.
func NewClient(o ClientOptions) (*Client, error) {
	u, err := url.Parse(o.Server)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("ax: Server %q is no base URL; write http://host:port", o.Server)
	}
	if o.Token == "" || strings.ContainsAny(o.Token, " \r\n") {
		return nil, errors.New("ax: Token is empty or has blanks; take it from a file or the environment")
	}
	if o.Transport == nil {
		o.Transport = newTransport()
	}
	return &Client{base: strings.TrimRight(o.Server, "/"), token: o.Token, http: &http.Client{Transport: o.Transport, Timeout: callTimeout}}, nil
}

// APIError is an answer of the server that refuses.
type APIError struct {
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
	// BatchID names the task that has the key already (code key_taken).
	BatchID string `json:"batchId"`
}

// Error says it.
func (e *APIError) Error() string {
	return fmt.Sprintf("ax: server answered %d %s: %s", e.Status, e.Code, e.Detail)
}

// Task is a delayed task. The zero value runs now, without a payload.
type Task struct {
	// Delay from now on, or RunAt.
	Delay time.Duration
	RunAt time.Time
	// Payload is any value that encodes to JSON of at most 64 KiB.
	Payload any
	// Key makes the task unique within its job, until Window (default 24 h) after its end.
	Key    string
	Window time.Duration
}

// Job is a job of a namespace, by its id.
type Job struct {
	Namespace string
	ID        string
}

func (j Job) path(parts ...string) string {
	escaped := make([]string, len(parts))
	for i, p := range parts {
		escaped[i] = url.PathEscape(p)
	}
	return "/api/v1/namespaces/" + url.PathEscape(j.Namespace) + "/" + strings.Join(escaped, "/")
}

// Delay makes a delayed task and returns its batch id. When Key is taken the error is an *APIError with code key_taken
// and the BatchID that has it. A call whose answer did not arrive may be repeated with the same Key.
func (c *Client) Delay(ctx context.Context, j Job, t Task) (batchID string, err error) {
	body := map[string]any{}
	if t.RunAt.IsZero() {
		body["delay"] = t.Delay.String()
	} else {
		if t.Delay != 0 {
			return "", errors.New("ax: Delay or RunAt, not both")
		}
		body["runAt"] = t.RunAt.Format(time.RFC3339Nano)
	}
	if t.Payload != nil {
		body["payload"] = t.Payload
	}
	if t.Key != "" {
		body["key"] = t.Key
	}
	if t.Window != 0 {
		body["keyWindow"] = t.Window.String()
	}
	return c.batch(ctx, j.path("jobs", j.ID, "delayed"), "", body)
}

// Cancel calls a delayed task off; one that runs already is asked to stop.
func (c *Client) Cancel(ctx context.Context, j Job, batchID string) error {
	_, err := c.batch(ctx, j.path("batches", batchID, "cancel"), "", nil)
	return err
}

// Reschedule gives a delayed task another time. It keeps its key, and goes on under the id that is returned: the
// planned time is part of it.
func (c *Client) Reschedule(ctx context.Context, j Job, batchID string, at time.Time) (newID string, err error) {
	return c.batch(ctx, j.path("delayed", batchID, "reschedule"), "", map[string]any{"runAt": at.Format(time.RFC3339Nano)})
}

// RunNow runs a waiting task now, under the id that is returned.
func (c *Client) RunNow(ctx context.Context, j Job, batchID string) (newID string, err error) {
	return c.batch(ctx, j.path("delayed", batchID, "run"), "", nil)
}

// Send sends an event to a job that has an event trigger; payload is any value that encodes to JSON of at most 64 KiB.
// The same eventID makes one batch; "" = each call makes its own. An event that no trigger's filter lets pass makes
// none: the id is empty then, without an error.
func (c *Client) Send(ctx context.Context, jobID, eventID string, payload any) (batchID string, err error) {
	if payload == nil {
		payload = json.RawMessage("null")
	}
	return c.batch(ctx, "/api/v1/tasks/"+url.PathEscape(jobID)+"/events", eventID, payload)
}

// batch posts, and reads the batch id of the answer.
func (c *Client) batch(ctx context.Context, path, key string, body any) (string, error) {
	var in io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return "", fmt.Errorf("ax: encode: %w", err)
		}
		in = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, in)
	if err != nil {
		return "", fmt.Errorf("ax: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("User-Agent", "ax-client "+sdkVersion)
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return "", fmt.Errorf("ax: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return "", fmt.Errorf("ax: read the answer: %w", err)
	}
	if res.StatusCode >= 300 {
		refused := &APIError{Status: res.StatusCode}
		_ = json.Unmarshal(raw, refused) // a proxy may answer anything: then the status has to do
		refused.Status = res.StatusCode
		return "", refused
	}
	var out struct {
		BatchID string `json:"batchId"`
		Fired   *bool  `json:"fired"`
	}
	if err := json.Unmarshal(raw, &out); err != nil || out.BatchID == "" && (out.Fired == nil || *out.Fired) {
		return "", fmt.Errorf("ax: the answer of %d is not that of an ax-server", res.StatusCode)
	}
	return out.BatchID, nil
}
