package ax

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// callTimeout bounds one call to the server, connecting and reading included.
	callTimeout = 10 * time.Second

	backoffFirst = 500 * time.Millisecond
	backoffMost  = 30 * time.Second
)

// serverError is a reply of the server other than 200.
type serverError struct {
	Status     int
	Code       string
	Message    string
	RetryAfter time.Duration // zero when the server did not say
}

func (e *serverError) Error() string {
	return fmt.Sprintf("server answered %d %s: %s", e.Status, e.Code, e.Message)
}

var errUnsignedReply = errors.New("the reply is not signed with this app's key: something else than ax-server answers there, or the key was changed")

// client speaks to the server: signed both ways, to the owner of the namespace when it is
// known, otherwise to the configured servers in turn. Safe for concurrent use.
type client struct {
	key     []byte
	app     string // namespace/app
	servers []string
	clock   *clock
	http    *http.Client
	log     *slog.Logger

	mu     sync.Mutex
	owner  string
	silent map[string]time.Time // owners that did not answer, and when
	first  int                  // index of the server that answered last
}

// ownerAgain is how long an owner that did not answer is not tried, although the servers name it: they may
// have a way to it that executors do not have.
const ownerAgain = time.Minute

func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 3 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:    5 * time.Second,
		ResponseHeaderTimeout:  callTimeout,
		IdleConnTimeout:        60 * time.Second,
		MaxIdleConnsPerHost:    4,
		MaxConnsPerHost:        16,
		MaxResponseHeaderBytes: maxHeader,
	}
}

func (c *client) setOwner(url string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	url = strings.TrimRight(url, "/")
	if at, ok := c.silent[url]; ok {
		if time.Since(at) < ownerAgain {
			url = ""
		} else {
			delete(c.silent, url)
		}
	}
	c.owner = url
}

// targets lists where to send, best first.
func (c *client) targets() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]string, 0, len(c.servers)+1)
	if c.owner != "" {
		list = append(list, c.owner)
	}
	for i := range c.servers {
		if s := c.servers[(c.first+i)%len(c.servers)]; s != c.owner {
			list = append(list, s)
		}
	}
	return list
}

// answered notes how a target did: one that is silent is not asked first again.
func (c *client) answered(target string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !ok && target == c.owner {
		c.owner = ""
		if !slices.Contains(c.servers, target) {
			if c.silent == nil || len(c.silent) > 100 {
				c.silent = map[string]time.Time{}
			}
			c.silent[target] = time.Now()
		}
	}
	if i := slices.Index(c.servers, target); i >= 0 && ok {
		c.first = i
	}
}

// post sends message to path and decodes the verified reply. It tries each server once, also when one says that
// it can not now; a *serverError is what a server said, anything else means that none answered properly.
func (c *client) post(ctx context.Context, path string, message, reply any) error {
	body, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	if len(body) > maxBody {
		return &serverError{Status: http.StatusRequestEntityTooLarge, Code: "too_large", Message: fmt.Sprintf("the message has %d bytes", len(body))}
	}
	var last error
	for _, target := range c.targets() {
		err := c.postTo(ctx, target, path, body, reply)
		var said *serverError
		if err == nil || errors.As(err, &said) && said.Status != http.StatusServiceUnavailable {
			c.answered(target, true)
			return err
		}
		if said != nil {
			last = err
			continue
		}
		c.answered(target, false)
		var before *serverError
		if !errors.As(last, &before) { // what a server said tells more than that another is silent
			last = fmt.Errorf("%s: %w", target, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return last
}

func (c *client) postTo(ctx context.Context, target, path string, body []byte, reply any) error {
	err := c.once(ctx, target+path, body, reply, time.Duration(c.clock.offset.Load()))
	var wrong *clockError
	if !errors.As(err, &wrong) {
		return err
	}
	// The refusal is not signed, so its time is only tried. The reply to a message with a fresh
	// id is signed, and is what makes the correction believed.
	offset := time.Until(time.UnixMilli(wrong.serverMillis))
	if err := c.once(ctx, target+path, body, reply, offset); err != nil {
		if errors.As(err, &wrong) {
			return &wrong.serverError
		}
		return err
	}
	c.clock.offset.Store(int64(offset))
	c.log.Warn("host clock is off, corrected by the server's", slog.Duration("offset", offset.Round(time.Second)))
	return nil
}

// clockError is a 401 that tells the server's time.
type clockError struct {
	serverError
	serverMillis int64
}

func (e *clockError) Unwrap() error { return &e.serverError }

func (c *client) once(ctx context.Context, url string, body []byte, reply any, offset time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	id := newID("", 16)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "ax-executor "+sdkVersion)
	req.Header.Set(headerApp, c.app)
	setSignature(req.Header, c.key, id, time.Now().Add(offset), body)
	setProof(req.Header, c.key, len(body))
	res, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	got, err := io.ReadAll(io.LimitReader(res.Body, maxBody+1))
	if err != nil {
		return fmt.Errorf("read reply: %w", err)
	}
	if len(got) > maxBody {
		return errors.New("the reply is larger than 1 MiB")
	}
	if res.StatusCode != http.StatusOK {
		return refusal(res, got)
	}
	if res.Header.Get(headerID) != id {
		return errUnsignedReply
	}
	now := time.Now().Add(offset)
	if err := verify(c.key, id, res.Header.Get(headerTimestamp), res.Header.Get(headerSignature), got, now); err != nil {
		if errors.Is(err, errSignature) {
			return errUnsignedReply
		}
		return fmt.Errorf("reply: %w", err)
	}
	if err := json.Unmarshal(got, reply); err != nil {
		return fmt.Errorf("decode reply: %w", err)
	}
	return nil
}

// refusal makes the error of a reply other than 200. A status that ax-server does not send
// (a proxy's 502, a redirect, another program's 404) is no word of the server's.
func refusal(res *http.Response, body []byte) error {
	var said errorReply
	_ = json.Unmarshal(body, &said) // not JSON: the code stays empty
	if said.Code == "" && res.StatusCode != http.StatusServiceUnavailable && res.StatusCode != http.StatusTooManyRequests {
		return fmt.Errorf("unexpected status %d; is this ax-server?", res.StatusCode)
	}
	e := serverError{Status: res.StatusCode, Code: cut(said.Code, 64), Message: cut(said.Message, 500)}
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && s > 0 {
		e.RetryAfter = min(time.Duration(s)*time.Second, 2*backoffMost)
	}
	if e.Status == http.StatusUnauthorized && e.Code == "bad_clock" {
		if ms, err := strconv.ParseInt(res.Header.Get(headerTime), 10, 64); err == nil && ms > 0 {
			return &clockError{serverError: e, serverMillis: ms}
		}
	}
	return &e
}

// backoff gives growing pauses with jitter, so that a fleet does not return in step.
type backoff struct {
	next time.Duration
	most time.Duration // zero: backoffMost
}

func (b *backoff) reset() { b.next = 0 }

// after returns the pause that follows err; what the server asked for counts when it is longer.
func (b *backoff) after(err error) time.Duration {
	most := b.most
	if most == 0 {
		most = backoffMost
	}
	b.next = min(max(2*b.next, backoffFirst), most)
	d := b.next*3/4 + rand.N(b.next/2)
	var said *serverError
	if errors.As(err, &said) {
		d = max(d, said.RetryAfter)
	}
	return min(d, max(most, 2*backoffMost))
}
