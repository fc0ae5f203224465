package cli

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
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ax-scheduler/ax/internal/config"
	"github.com/ax-scheduler/ax/server/app"
)

const (
	demoExecutors = 4
	demoApp       = "order-service"
	demoNamespace = "default"
	// demoRestart is how long a demo executor that ended stays away, so that one can watch its shard
	// move; one that could not even start (the folder of a former one is not free yet) is back sooner.
	demoRestart = 20 * time.Second
	demoAgain   = 2 * time.Second
	demoLook    = time.Second
)

func demoCommand() *cobra.Command {
	var listen, data, program string
	c := &cobra.Command{
		Use: "demo", Short: "run a server on embedded SQLite with a sample executor and real data", Args: noArgs,
		Long: "Runs a server with four processes of the sample executor order-service and an order database of\n200 000 orders, and says after each sync how many orders were copied. Nothing outside the data\ndirectory is touched; a second start goes on where the first one ended.",
		RunE: func(c *cobra.Command, _ []string) error {
			// A flag that was not given leaves the word to the environment.
			for flag, value := range map[string]*string{"listen": &listen, "data": &data} {
				if env, ok := os.LookupEnv(config.Env(flag)); ok && !c.Flags().Changed(flag) {
					*value = env
				}
			}
			d := &demo{out: c.OutOrStdout(), errOut: c.ErrOrStderr(), listen: listen, data: data, program: program}
			return d.run(c.Context())
		},
	}
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:8081", "`address` of the console and the API")
	c.Flags().StringVar(&data, "data", "./data/demo", "`directory` of the demo")
	c.Flags().StringVar(&program, "order-service", "", "the sample executor's `program` (default: beside this one)")
	return c
}

type demo struct {
	out, errOut           io.Writer
	listen, data, program string

	mu       sync.Mutex
	url      string
	password string
	token    string
	orders   string
}

func (d *demo) say(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, _ = fmt.Fprintf(d.out, format+"\n", args...)
}

func (d *demo) run(ctx context.Context) error {
	if err := d.find(); err != nil {
		return err
	}
	if err := os.MkdirAll(d.data, 0o700); err != nil {
		return err
	}
	password, err := d.secret("admin-password", 18)
	if err != nil {
		return err
	}
	d.password = password
	flags := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	config.Flags(flags)
	for key, value := range map[string]string{
		"listen": d.listen, "data": d.data, "database": "", "admin-password-file": filepath.Join(d.data, "admin-password"), "log-level": "warn",
		// Short spans, so that what happens after a kill can be watched.
		"executor-heartbeat": "2s", "executor-probe-delay": "2s",
	} {
		if err := flags.Set(key, value); err != nil {
			return err
		}
	}
	cfg, err := config.Load(flags)
	if err != nil {
		return err
	}
	cfg.Demo = true
	d.orders = filepath.Join(cfg.Data, "orders.db")
	logs, err := os.OpenFile(filepath.Join(cfg.Data, "server.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = logs.Close() }()
	cfg.LogLevel = "info"
	a, err := app.New(cfg, logger(cfg, logs), d.errOut)
	if err != nil {
		return err
	}
	d.url = a.URL()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- a.Run(ctx) }()

	worked := make(chan error, 1)
	go func() { worked <- d.show(ctx, a, cfg) }()
	select {
	case err = <-served:
		cancel()
		<-worked
		return err
	case err = <-worked:
		cancel()
		return errors.Join(err, <-served)
	}
}

// find looks for the sample executor beside this program.
func (d *demo) find() error {
	if d.program == "" {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		name := "order-service"
		if runtime.GOOS == "windows" {
			name += ".exe"
		}
		d.program = filepath.Join(filepath.Dir(self), name)
	}
	if _, err := os.Stat(d.program); err != nil {
		return fmt.Errorf("the sample executor %s is not there; build it with make build-go, or name it with --order-service", d.program)
	}
	return nil
}

// secret reads a file of the demo, or makes it with a random text.
func (d *demo) secret(name string, size int) (string, error) {
	path := filepath.Join(d.data, name)
	raw, err := os.ReadFile(path)
	if err == nil {
		return strings.TrimSpace(string(raw)), nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	b := make([]byte, size)
	_, _ = rand.Read(b)
	text := hex.EncodeToString(b)
	return text, os.WriteFile(path, []byte(text+"\n"), 0o600)
}

// show prepares the data and the jobs, runs the executors and tells of each sync, until ctx ends.
func (d *demo) show(ctx context.Context, a *app.App, cfg config.Config) error {
	if _, err := os.Stat(d.orders); err != nil {
		d.say("ax demo: preparing 200 000 orders in %s", d.orders)
	} else {
		d.say("ax demo: going on with the orders in %s", d.orders)
	}
	seed := exec.CommandContext(ctx, d.program, "seed", "--db", d.orders)
	var seedErr bytes.Buffer
	seed.Stderr = &seedErr
	if err := seed.Run(); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("seed orders: %w: %s", err, seedErr.String())
	}
	if !waitFor(ctx, a.Started) {
		return nil
	}
	if err := d.login(ctx); err != nil {
		return err
	}
	key, err := d.appKey(ctx, a)
	if err != nil {
		return err
	}
	syncJob, err := d.jobs(ctx)
	if err != nil {
		return err
	}
	d.say("\n    console   %s\n    user      admin\n    password  %s\n\n    server log %s\n", d.url, d.password, filepath.Join(cfg.Data, "server.log"))
	var group sync.WaitGroup
	for i := range demoExecutors {
		group.Go(func() { d.keepExecutor(ctx, i+1, key, cfg.Data) })
	}
	err = d.follow(ctx, syncJob)
	group.Wait()
	return err
}

func waitFor(ctx context.Context, done func() bool) bool {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}

// keepExecutor runs one process of the sample executor, and starts it again when it ended.
func (d *demo) keepExecutor(ctx context.Context, n int, keyFile, data string) {
	name := fmt.Sprintf("order-service-%d", n)
	for ctx.Err() == nil {
		cmd := exec.Command(d.program, "run", "--server", d.url, "--namespace", demoNamespace, "--app", demoApp, "--key-file", keyFile, "--db", d.orders, "--dir", filepath.Join(data, name), "--name", name, "--stop-with-parent") //nolint:noctx // it ends when its standard input does, so that it can drain
		input, err := cmd.StdinPipe()
		if err != nil {
			d.say("%s can not be started: %v", name, err)
			return
		}
		logs, err := os.OpenFile(filepath.Join(data, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			d.say("%s can not be started: %v", name, err)
			return
		}
		cmd.Stdout, cmd.Stderr = logs, logs
		if err := cmd.Start(); err != nil {
			_ = logs.Close()
			d.say("%s can not be started: %v", name, err)
			return
		}
		d.say("%s runs as process %d", name, cmd.Process.Pid)
		ended := make(chan error, 1)
		started, away := time.Now(), demoRestart
		go func() { ended <- cmd.Wait() }()
		select {
		case err := <-ended:
			if time.Since(started) < demoAgain {
				away = demoAgain
			}
			d.say("%s ended (%v); it is started again in %s", name, err, away)
		case <-ctx.Done():
			d.say("%s is told to end; it finishes what it runs", name)
			_ = input.Close() // it drains and ends
			<-ended
		}
		_ = input.Close()
		_ = logs.Close()
		timer := time.NewTimer(away)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// call asks the API, as the console does.
func (d *demo) call(ctx context.Context, method, path string, body, answer any) (int, error) {
	var raw []byte
	if body != nil {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			return 0, err
		}
	}
	for {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		status, text, err := d.once(ctx, method, path, raw)
		cancel()
		if err != nil {
			return 0, err
		}
		switch {
		case status == http.StatusUnauthorized && path != "/api/v1/auth/login":
			if err := d.login(ctx); err != nil {
				return 0, err
			}
			continue
		case status >= http.StatusBadRequest:
			return status, fmt.Errorf("%s %s: %d %s", method, path, status, text)
		case answer != nil:
			return status, json.Unmarshal(text, answer)
		}
		return status, nil
	}
}

// The demo's client follows no proxy: it talks to its own server on loopback.
func demoClient() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{Timeout: 2 * time.Second}).DialContext}}
}

func (d *demo) once(ctx context.Context, method, path string, raw []byte) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, d.url+path, bytes.NewReader(raw))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if d.token != "" {
		req.Header.Set("Authorization", "Bearer "+d.token)
	}
	client := demoClient()
	defer client.CloseIdleConnections()
	res, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, 4<<20))
	return res.StatusCode, text, err
}

func (d *demo) login(ctx context.Context) error {
	var answer struct {
		AccessToken string `json:"accessToken"`
	}
	d.token = ""
	_, err := d.call(ctx, http.MethodPost, "/api/v1/auth/login", map[string]string{"username": "admin", "password": d.password}, &answer)
	d.token = answer.AccessToken
	return err
}

// appKey makes the sample app on the first start and keeps its key in a file.
func (d *demo) appKey(ctx context.Context, a *app.App) (file string, err error) {
	file = filepath.Join(d.data, demoApp+".key")
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	key, err := a.NewApp(ctx, demoNamespace, demoApp)
	if err != nil {
		return "", fmt.Errorf("make app %s: %w", demoApp, err)
	}
	return file, os.WriteFile(file, []byte(key+"\n"), 0o600)
}

// jobs makes what is missing of the demo's namespaces and jobs, and returns the id of the sync.
func (d *demo) jobs(ctx context.Context) (syncJob string, err error) {
	status, err := d.call(ctx, http.MethodPost, "/api/v1/namespaces", map[string]string{"name": "staging", "displayName": "Staging"}, nil)
	if err != nil && status != http.StatusConflict {
		return "", err
	}
	type m = map[string]any
	cron := func(expr string) []m { return []m{{"kind": "cron", "expr": expr, "zone": "Asia/Shanghai"}} }
	jobs := []m{
		{"name": "order-sync", "app": demoApp, "handler": "syncOrders", "description": "Copies yesterday's orders into the warehouse, each executor its part.", "triggers": cron("0/30 * * * * ?"), "routing": m{"strategy": "shardingBroadcast"}, "timeout": "5m", "params": `{"pauseMs":250}`},
		{"name": "health-check", "app": demoApp, "handler": "healthCheck", "description": "Asks each executor in turn whether its database answers.", "triggers": cron("0/10 * * * * ?"), "timeout": "10s"},
		{"name": "flaky-report", "app": demoApp, "handler": "flakyReport", "description": "Fails now and then and is tried again after 1 s, 2 s and 4 s.", "triggers": []m{{"kind": "fixedRate", "every": "20s"}}, "retry": m{"max": 3, "backoff": "exponential", "initial": "1s"}, "timeout": "30s"},
		{"name": "monthly-statement", "app": demoApp, "handler": "monthlyStatement", "description": "Takes a minute and reports its progress.", "triggers": cron("0 0/2 * * * ?"), "timeout": "3m"},
	}
	for _, j := range jobs {
		status, err := d.call(ctx, http.MethodPost, "/api/v1/namespaces/"+demoNamespace+"/jobs", j, nil)
		if err != nil && status != http.StatusConflict {
			return "", err
		}
	}
	var found struct {
		Items []struct {
			ID   string `json:"id"`
			Name string `json:"name"`
		} `json:"items"`
	}
	if _, err := d.call(ctx, http.MethodGet, "/api/v1/namespaces/"+demoNamespace+"/jobs?q=order-sync", nil, &found); err != nil {
		return "", err
	}
	for _, j := range found.Items {
		if j.Name == "order-sync" {
			return j.ID, nil
		}
	}
	return "", errors.New("the job order-sync is not there")
}

// follow says after each sync what SQL finds in the warehouse.
func (d *demo) follow(ctx context.Context, jobID string) error {
	var told []string
	began := time.Now()
	tick := time.NewTicker(demoLook)
	defer tick.Stop()
	from := time.Now().Add(-5 * time.Minute).UTC().Format(time.RFC3339)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		var page struct {
			Items []struct {
				BatchID    string    `json:"batchId"`
				State      string    `json:"state"`
				PlannedFor string    `json:"plannedFor"`
				FinishedAt time.Time `json:"finishedAt"`
				DurationMs int64     `json:"durationMs"`
				ShardTotal int       `json:"shardTotal"`
			} `json:"items"`
		}
		if _, err := d.call(ctx, http.MethodGet, "/api/v1/namespaces/"+demoNamespace+"/batches?job="+jobID+"&state=SUCCEEDED,FAILED,TIMED_OUT,SKIPPED&limit=20&from="+from, nil, &page); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			d.say("the server did not answer: %v", err)
			continue
		}
		for _, b := range slices.Backward(page.Items) {
			if slices.Contains(told, b.BatchID) {
				continue
			}
			told = append(told, b.BatchID)
			if b.FinishedAt.Before(began) {
				continue // an earlier start of the demo told of it
			}
			if len(told) > 200 {
				told = told[100:]
			}
			d.tell(ctx, b.BatchID, b.State, b.PlannedFor, b.ShardTotal, time.Duration(b.DurationMs)*time.Millisecond)
		}
	}
}

func (d *demo) tell(ctx context.Context, batch, state, planned string, shards int, took time.Duration) {
	if state == "SKIPPED" {
		d.say("sync %s was skipped: the one before was still running", batch)
		return
	}
	cmd := exec.CommandContext(ctx, d.program, "check", "--db", d.orders, "--batch", batch, "--planned", planned, "--zone", "Asia/Shanghai")
	raw, err := cmd.Output()
	var result struct {
		Expected int `json:"expected"`
		Copied   int `json:"copied"`
		Missing  int `json:"missing"`
		Doubled  int `json:"doubled"`
	}
	if jsonErr := json.Unmarshal(raw, &result); jsonErr != nil {
		if ctx.Err() == nil {
			d.say("sync %s could not be checked: %v", batch, errors.Join(err, jsonErr))
		}
		return
	}
	verdict := "none copied twice, none left out"
	if result.Missing > 0 || result.Doubled > 0 {
		verdict = fmt.Sprintf("%d LEFT OUT, %d COPIED TWICE", result.Missing, result.Doubled)
	}
	d.say("sync %s %s in %s over %d shards: %d of %d orders copied, %s", batch, state, took.Round(100*time.Millisecond), shards, result.Copied, result.Expected, verdict)
}
