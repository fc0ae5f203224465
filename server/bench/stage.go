package bench

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ax-scheduler/ax/internal/store"
)

const (
	namespace = "bench"
	app       = "bench"
	handler   = "work"
	// slots is the capacity of an executor: its handler does nothing, so that it never is the limit.
	slots = 100_000
)

// stage is a database, servers and executors for one measurement.
type stage struct {
	o        Options
	dir      string
	dsn      string
	drop     func() error
	servers  []*process
	workers  []*process
	http     *http.Client
	password string

	mu    sync.Mutex
	token string
}

// process is a server or an executor.
type process struct {
	cmd   *exec.Cmd
	url   string
	input io.Closer
	done  chan struct{}
}

func newStage(o Options) (*stage, error) {
	dir, err := os.MkdirTemp("", "ax-bench-")
	if err != nil {
		return nil, err
	}
	var secret [18]byte
	_, _ = rand.Read(secret[:])
	s := &stage{o: o, dir: dir, password: hex.EncodeToString(secret[:]), http: &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 128, DialContext: (&net.Dialer{Timeout: 2 * time.Second}).DialContext}}}
	if err := os.WriteFile(filepath.Join(dir, "admin-password"), []byte(s.password+"\n"), 0o600); err != nil {
		return nil, errors.Join(err, s.close())
	}
	if o.Database != "" {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if s.dsn, s.drop, err = store.Scratch(ctx, o.Database); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	return s, nil
}

func (s *stage) dialect() string {
	if s.dsn == "" {
		return "sqlite"
	}
	return "mysql"
}

func (s *stage) say(format string, args ...any) {
	if s.o.Progress != nil {
		_, _ = fmt.Fprintf(s.o.Progress, "%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
	}
}

func (s *stage) close() error {
	for _, p := range s.workers {
		p.end()
	}
	for _, p := range s.servers {
		p.end()
	}
	var errs error
	if s.drop != nil {
		errs = errors.Join(errs, s.drop())
	}
	if s.o.Keep {
		s.say("kept %s", s.dir)
		return errs
	}
	return errors.Join(errs, os.RemoveAll(s.dir))
}

// start runs a program of this stage, with its output in a file.
func (s *stage) start(name string, args ...string) (*process, error) {
	logs, err := os.OpenFile(filepath.Join(s.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = logs.Close() }()
	cmd := exec.Command(s.o.Program, args...) //nolint:noctx // it ends when its standard input does, or by a signal
	cmd.Stdout, cmd.Stderr = logs, logs
	p := &process{cmd: cmd, done: make(chan struct{})}
	if p.input, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// end asks a process to end and makes it, if it does not.
func (p *process) end() {
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	_ = p.input.Close()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(15 * time.Second)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// freePort is a port that nobody listens on right now.
func freePort() (int, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil //nolint:forcetypeassert // a TCP listener's address
}

// server starts a server and waits until it is ready. All of a stage share one key file.
func (s *stage) server(ctx context.Context) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	n := len(s.servers) + 1
	data := filepath.Join(s.dir, "data")
	if s.dsn != "" {
		data = filepath.Join(s.dir, fmt.Sprintf("data-%d", n))
		if err := os.MkdirAll(data, 0o700); err != nil {
			return err
		}
		if n > 1 {
			raw, err := os.ReadFile(filepath.Join(s.dir, "data-1", "master.key"))
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(data, "master.key"), raw, 0o600); err != nil {
				return err
			}
		}
	}
	args := []string{"serve", "--listen", "127.0.0.1:" + strconv.Itoa(port), "--data", data, "--database", s.dsn, "--admin-password-file", filepath.Join(s.dir, "admin-password"), "--drain-delay", "0s"}
	if s.o.Single {
		args = append(args, "--dispatch-per-request", "1")
	}
	for _, setting := range s.o.Settings {
		args = append(args, "--"+setting)
	}
	p, err := s.start(fmt.Sprintf("server-%d", n), args...)
	if err != nil {
		return err
	}
	p.url = "http://127.0.0.1:" + strconv.Itoa(port)
	s.servers = append(s.servers, p)
	return s.until(ctx, time.Minute, "the server is ready", func() (bool, error) {
		if p.ended() {
			return false, fmt.Errorf("the server ended; see %s", s.tail(fmt.Sprintf("server-%d", n)))
		}
		status, _ := s.status(ctx, p.url+"/readyz")
		return status == http.StatusOK, nil
	})
}

// tail is the end of a process's log.
func (s *stage) tail(name string) string {
	raw, _ := os.ReadFile(filepath.Join(s.dir, name+".log"))
	return string(raw[max(0, len(raw)-2000):])
}

func (s *stage) status(ctx context.Context, address string) (int, string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, ""
	}
	res, err := s.http.Do(req)
	if err != nil {
		return 0, ""
	}
	defer func() { _ = res.Body.Close() }()
	raw, _ := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	return res.StatusCode, string(raw)
}

// until waits for something that is looked at ten times a second.
func (s *stage) until(ctx context.Context, limit time.Duration, what string, done func() (bool, error)) error {
	end := time.Now().Add(limit)
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("waited %s in vain until %s", limit, what)
		}
		if wait(ctx, 100*time.Millisecond); ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// open starts the first server and the executors, and makes namespace and app.
func (s *stage) open(ctx context.Context) error {
	s.say("starting a server on %s", s.dialect())
	if err := s.server(ctx); err != nil {
		return err
	}
	for n := range s.o.namespaces() {
		if err := s.call(ctx, http.MethodPost, "/api/v1/namespaces", map[string]string{"name": namespaceOf(n), "displayName": "Bench"}, nil); err != nil {
			return err
		}
		var made struct {
			Key string `json:"key"`
		}
		if err := s.call(ctx, http.MethodPost, pathIn(n, "/apps"), map[string]string{"name": app, "protocol": "ax"}, &made); err != nil {
			return err
		}
		if err := os.WriteFile(s.keyFile(n), []byte(made.Key+"\n"), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) keyFile(n int) string { return filepath.Join(s.dir, fmt.Sprintf("app-%d.key", n)) }

// executors starts the executors and waits until they are online. They know all servers of the stage.
func (s *stage) executors(ctx context.Context) error {
	urls := make([]string, len(s.servers))
	for i, p := range s.servers {
		urls[i] = p.url
	}
	spaces := s.o.namespaces()
	n := max(s.o.Executors, spaces)
	s.say("starting %d executors", n)
	for i := range n {
		p, err := s.start(fmt.Sprintf("executor-%d", i+1), "bench-executor", "--server", strings.Join(urls, ","), "--namespace", namespaceOf(i%spaces), "--app", app, "--key-file", s.keyFile(i%spaces), "--slots", strconv.Itoa(slots))
		if err != nil {
			return err
		}
		s.workers = append(s.workers, p)
	}
	return s.until(ctx, 30*time.Second, "all executors are online", func() (bool, error) {
		online := 0
		for space := range spaces {
			var found struct {
				Items []struct {
					State   string `json:"state"`
					Address string `json:"address"`
				} `json:"items"`
			}
			if err := s.call(ctx, http.MethodGet, pathIn(space, "/executors"), nil, &found); err != nil {
				return false, err
			}
			for _, x := range found.Items {
				if x.State != "ONLINE" {
					continue
				}
				if online < n {
					s.workers[online].url = x.Address // which of them is which does not matter
				}
				online++
			}
		}
		return online >= n, nil
	})
}

// namespaceOf is the name of the n-th namespace, from 0.
func namespaceOf(n int) string {
	if n == 0 {
		return namespace
	}
	return namespace + "-" + strconv.Itoa(n+1)
}

func pathIn(n int, rest string) string { return "/api/v1/namespaces/" + namespaceOf(n) + rest }

func (s *stage) path(rest string) string { return pathIn(0, rest) }

// call asks the API of the first server that lives.
func (s *stage) call(ctx context.Context, method, path string, in, out any) error {
	var raw []byte
	if in != nil {
		var err error
		if raw, err = json.Marshal(in); err != nil {
			return err
		}
	}
	for try := 0; ; try++ {
		status, text, err := s.once(ctx, method, path, raw)
		switch {
		case err != nil:
			return err
		case status == http.StatusUnauthorized && try == 0:
			if err := s.login(ctx); err != nil {
				return err
			}
			continue
		case (status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests) && try < 50:
			if wait(ctx, 100*time.Millisecond); ctx.Err() != nil {
				return ctx.Err()
			}
			continue
		case status >= http.StatusBadRequest:
			return fmt.Errorf("%s %s: %d %s", method, path, status, text)
		case out != nil:
			return json.Unmarshal(text, out)
		}
		return nil
	}
}

func (s *stage) once(ctx context.Context, method, path string, raw []byte) (int, []byte, error) {
	base := ""
	for _, p := range s.servers {
		if !p.ended() {
			base = p.url
			break
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, base+path, bytes.NewReader(raw))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	s.mu.Lock()
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	s.mu.Unlock()
	res, err := s.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	return res.StatusCode, text, err
}

func (s *stage) login(ctx context.Context) error {
	body, err := json.Marshal(map[string]string{"username": "admin", "password": s.password})
	if err != nil {
		return err
	}
	status, text, err := s.once(ctx, http.MethodPost, "/api/v1/auth/login", body)
	if err != nil {
		return err
	}
	var answer struct {
		AccessToken string `json:"accessToken"`
	}
	if status != http.StatusOK {
		return fmt.Errorf("login: %d %s", status, text)
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return err
	}
	s.mu.Lock()
	s.token = answer.AccessToken
	s.mu.Unlock()
	return nil
}

// ledger joins the ledgers of all executors.
func (s *stage) ledger(ctx context.Context) ([]start, error) {
	var all []start
	for _, p := range s.workers {
		u, err := url.JoinPath(p.url, pathLedger)
		if err != nil {
			return nil, err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
		if err != nil {
			return nil, err
		}
		res, err := s.http.Do(req)
		if err != nil {
			return nil, err
		}
		part, err := readLedger(res.Body)
		_ = res.Body.Close()
		if err != nil {
			return nil, err
		}
		all = append(all, part...)
	}
	return all, nil
}

// started counts the starts in all ledgers.
func (s *stage) started(ctx context.Context) int {
	n := 0
	for _, p := range s.workers {
		_, text := s.status(ctx, p.url+pathCount)
		part, _ := strconv.Atoi(text)
		n += part
	}
	return n
}

// committed counts the planned batches whose success is not in the database.
func (s *stage) uncommitted(ctx context.Context, plan map[string]int64) (int, error) {
	c := store.Config{DSN: s.dsn, Dir: filepath.Join(s.dir, "data")}
	db, err := store.Open(c)
	if err != nil {
		return 0, err
	}
	defer func() { _ = db.Close() }()
	from, to := int64(1<<62), int64(0)
	for _, at := range plan {
		from, to = min(from, at), max(to, at)
	}
	good := 0
	err = db.StatesOf(ctx, from, to+1, func(id, state string) {
		if _, planned := plan[id]; planned && state == "SUCCEEDED" {
			good++
		}
	})
	return len(plan) - good, err
}
