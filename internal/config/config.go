// Package config is the server's settings: what there is, with unit, default and meaning, and
// where each value came from.
//
// Flags come before the environment (AX_…), that before the file (YAML), that before the
// default. Everything is read and checked whole at start; what may change at run time is not here.
package config

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
)

// Config is the settings of one server.
type Config struct {
	Listen            string
	Data              string
	Database          string
	AdminPasswordFile string
	LogLevel          string
	LogFormat         string
	AllowPlainHTTP    bool
	BehindTLSProxy    bool
	AdvertiseAddr     string
	BasePath          string
	Heartbeat         time.Duration
	ProbeDelay        time.Duration
	Lease             time.Duration
	StormPercent      int
	StormWindow       time.Duration
	RedispatchLimit   int
	AckTimeout        time.Duration
	ExecutorWait      time.Duration
	WaitLimit         time.Duration
	PerRequest        int
	DelayedInMemory   int
	DebugListen       string
	Retention         time.Duration
	OutputRetention   time.Duration
	OutputLimit       int
	OutputPerDay      int
	DrainDelay        time.Duration
	// Demo marks a demonstration server; it is no setting.
	Demo bool

	from map[string]string
}

// Setting describes one.
type Setting struct {
	Key     string // as a flag and in the file; AX_ and upper case in the environment
	Default string
	Unit    string
	Help    string
	kind    string
}

// Settings lists all of them in the order in which they are shown.
func Settings() []Setting {
	return []Setting{
		{"listen", "127.0.0.1:8081", "host:port", "Address of the console, the API and the metrics. Beyond loopback it needs allow-plain-http or behind-tls-proxy.", "string"},
		{"data", "./data", "directory", "Holds master.key and, without a database setting, the embedded SQLite database.", "string"},
		{"database", "", "mysql://user:password@host:port/name", "MySQL 8 or MariaDB 10.6+; empty = embedded SQLite in the data directory.", "string"},
		{"admin-password-file", "", "file", "Creates user admin with the password in this file on a database without that user; without it a one-time setup link is printed.", "string"},
		{"log-level", "info", "debug, info, warn or error", "What is logged.", "string"},
		{"log-format", "text", "text or json", "How it is logged.", "string"},
		{"allow-plain-http", "false", "true or false", "Listen beyond loopback without TLS. Passwords and tokens then cross the network in the clear.", "bool"},
		{"behind-tls-proxy", "false", "true or false", "A proxy in front of this server speaks TLS to browsers. Cookies are marked secure.", "bool"},
		{"advertise-addr", "", "host:port", "Where other servers reach this one. Empty = the listen address.", "string"},
		{"debug-listen", "", "host:port on loopback", "Serves Go's profiles under /debug/pprof/. Empty = off.", "string"},
		{"base-path", "/", "path", "Prefix under which browsers see the console.", "string"},
		{"executor-heartbeat", "10s", "duration, 1s to 5m", "How often executors report. Three missed make one suspect.", "duration"},
		{"executor-probe-delay", "15s", "duration, 1s to 10m", "How long a suspect executor is left alone before it is asked whether it lives.", "duration"},
		{"executor-lease", "10m", "duration, 30s to 24h", "How long a running execution is left alone while its executor can not be reached.", "duration"},
		{"executor-storm-percent", "50", "number, 1 to 100", "When more than this share of an app's executors, or of all, falls silent within executor-storm-window (and at least three), none is removed until some report, others come, or an operator says so. 100 = never.", "number"},
		{"executor-storm-window", "1m", "duration, 10s to 1h", "What counts as at once for executor-storm-percent.", "duration"},
		{"redispatch-limit", "50", "number, 0 to 1000000", "How many executions whose lease lapsed are sent to another executor in a minute. 0 = no limit.", "number"},
		{"dispatch-ack-timeout", "3s", "duration, 500ms to 1m", "Bounds one request to an executor, connecting included. It is not a job's timeout.", "duration"},
		{"dispatch-executor-wait", "5s", "duration, 0s to 1h", "How long an attempt waits for any executor of its app before it fails with no_executor.", "duration"},
		{"dispatch-wait-limit", "30m", "duration, 10s to 168h", "How long an execution may wait for a free executor before it fails.", "duration"},
		{"dispatch-per-request", "100", "number, 1 to 200", "The most executions that one request to an executor carries. 1 = a request for each.", "number"},
		{"delayed-in-memory", "50000", "number, 100 to 5000000", "How many firings may wait in memory before delayed tasks that are due within ten minutes rest in the database too. One costs about 600 bytes.", "number"},
		{"history-retention", "720h", "duration, 24h to 87600h", "How long batches, executions and output are kept.", "duration"},
		{"output-retention", "720h", "duration, 24h to 87600h", "How long the output of executions is kept, if history is kept that long. Its last 4 kB stay with the execution.", "duration"},
		{"output-limit", "32", "MiB, 1 to 1024", "How much output one execution may write; the rest is cut, with a mark.", "number"},
		{"output-per-day", "10240", "MiB, 1 to 10000000", "How much output the executions of one namespace may write on a day (UTC); the rest is cut, with a mark.", "number"},
		{"drain-delay", "0s", "duration, 0s to 5m", "How long the server goes on serving after SIGTERM while load balancers take notice.", "duration"},
	}
}

// ErrInvalid is the kind of every error about settings.
var ErrInvalid = errors.New("settings are not valid")

// Flags adds a flag for each setting, and --config.
func Flags(fs *pflag.FlagSet) {
	fs.String("config", "", "YAML `file` with settings")
	for _, s := range Settings() {
		help := s.Help + " [" + s.Unit + "]"
		if s.kind == "bool" {
			fs.Bool(s.Key, s.Default == "true", help)
			continue
		}
		fs.String(s.Key, s.Default, help)
	}
}

// Env is the name of a setting's environment variable.
func Env(key string) string { return "AX_" + strings.ToUpper(strings.ReplaceAll(key, "-", "_")) }

// Load reads the settings. Every error is ErrInvalid and names the setting, its value, where it
// came from and what is allowed.
func Load(fs *pflag.FlagSet) (Config, error) {
	k := koanf.New("\x00") // keys are flat
	defaults := map[string]any{}
	from := map[string]string{}
	known := map[string]Setting{}
	for _, s := range Settings() {
		defaults[s.Key] = s.Default
		from[s.Key] = "default"
		known[s.Key] = s
	}
	if err := k.Load(confmap.Provider(defaults, ""), nil); err != nil {
		return Config{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	path, _ := fs.GetString("config")
	if path == "" {
		path = os.Getenv("AX_CONFIG")
	}
	if path != "" {
		f := koanf.New("\x00")
		if err := f.Load(file.Provider(path), yaml.Parser()); err != nil {
			return Config{}, fmt.Errorf("%w: file %s: %w", ErrInvalid, path, err)
		}
		values := map[string]any{}
		for key, v := range f.Raw() {
			if _, ok := known[key]; !ok {
				return Config{}, fmt.Errorf("%w: file %s: there is no setting %q; ax-server config print lists them", ErrInvalid, path, key)
			}
			switch v.(type) {
			case map[string]any, []any, nil:
				return Config{}, fmt.Errorf("%w: file %s: setting %q must be a single value", ErrInvalid, path, key)
			}
			values[key] = fmt.Sprint(v)
			from[key] = "file " + path
		}
		if err := k.Load(confmap.Provider(values, ""), nil); err != nil {
			return Config{}, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	}
	over := map[string]any{}
	for key := range known {
		if v, ok := os.LookupEnv(Env(key)); ok {
			over[key], from[key] = v, "environment "+Env(key)
		}
		if flag := fs.Lookup(key); flag != nil && flag.Changed {
			over[key], from[key] = flag.Value.String(), "flag --"+key
		}
	}
	if err := k.Load(confmap.Provider(over, ""), nil); err != nil {
		return Config{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	c := Config{from: from}
	var errs []error
	bad := func(key, value, why string) {
		errs = append(errs, fmt.Errorf("%s = %q (%s): %s; allowed: %s", key, value, from[key], why, known[key].Unit))
	}
	boolean := func(key string) bool {
		v, err := strconv.ParseBool(k.String(key))
		if err != nil {
			bad(key, k.String(key), "not understood")
		}
		return v
	}
	span := func(key string, low, high time.Duration) time.Duration {
		v, err := time.ParseDuration(k.String(key))
		if err != nil {
			bad(key, k.String(key), "not a duration")
		} else if v < low || v > high {
			bad(key, k.String(key), "out of range")
		}
		return v
	}
	number := func(key string, low, high int) int {
		v, err := strconv.Atoi(k.String(key))
		if err != nil {
			bad(key, k.String(key), "not a whole number")
		} else if v < low || v > high {
			bad(key, k.String(key), "out of range")
		}
		return v
	}
	one := func(key string, allowed ...string) string {
		v := k.String(key)
		if slices.Contains(allowed, v) {
			return v
		}
		bad(key, v, "not understood")
		return v
	}
	c.Listen, c.Data, c.Database, c.AdminPasswordFile, c.AdvertiseAddr, c.BasePath = k.String("listen"), k.String("data"), k.String("database"), k.String("admin-password-file"), k.String("advertise-addr"), k.String("base-path")
	c.DebugListen = k.String("debug-listen")
	c.LogLevel, c.LogFormat = one("log-level", "debug", "info", "warn", "error"), one("log-format", "text", "json")
	c.AllowPlainHTTP, c.BehindTLSProxy = boolean("allow-plain-http"), boolean("behind-tls-proxy")
	c.Heartbeat, c.ProbeDelay, c.Lease = span("executor-heartbeat", time.Second, 5*time.Minute), span("executor-probe-delay", time.Second, 10*time.Minute), span("executor-lease", 30*time.Second, 24*time.Hour)
	c.AckTimeout, c.ExecutorWait, c.WaitLimit = span("dispatch-ack-timeout", 500*time.Millisecond, time.Minute), span("dispatch-executor-wait", 0, time.Hour), span("dispatch-wait-limit", 10*time.Second, 168*time.Hour)
	c.StormPercent, c.StormWindow, c.RedispatchLimit = number("executor-storm-percent", 1, 100), span("executor-storm-window", 10*time.Second, time.Hour), number("redispatch-limit", 0, 1_000_000)
	c.PerRequest, c.DelayedInMemory = number("dispatch-per-request", 1, 200), number("delayed-in-memory", 100, 5_000_000)
	c.OutputRetention, c.OutputLimit, c.OutputPerDay = span("output-retention", 24*time.Hour, 87600*time.Hour), number("output-limit", 1, 1024), number("output-per-day", 1, 10_000_000)
	c.Retention, c.DrainDelay = span("history-retention", 24*time.Hour, 87600*time.Hour), span("drain-delay", 0, 5*time.Minute)
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		bad("listen", c.Listen, "not an address with a port")
	} else if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		bad("listen", c.Listen, "not a port")
	} else if !loopback(host) && !c.AllowPlainHTTP && !c.BehindTLSProxy {
		bad("listen", c.Listen, "reachable from outside without TLS; put a TLS proxy in front and set behind-tls-proxy, or set allow-plain-http if the network is trusted")
	}
	if c.DebugListen != "" {
		if host, _, err := net.SplitHostPort(c.DebugListen); err != nil {
			bad("debug-listen", c.DebugListen, "not an address with a port")
		} else if !loopback(host) {
			bad("debug-listen", c.DebugListen, "not on loopback")
		}
	}
	if c.AdvertiseAddr != "" {
		if _, _, err := net.SplitHostPort(c.AdvertiseAddr); err != nil {
			bad("advertise-addr", c.AdvertiseAddr, "not an address with a port")
		}
	}
	if c.Database != "" && !strings.HasPrefix(c.Database, "mysql://") {
		bad("database", Masked(c.Database), "not a MySQL or MariaDB database")
	}
	if c.Data == "" {
		bad("data", c.Data, "empty")
	}
	if len(errs) > 0 {
		return c, fmt.Errorf("%w: %w", ErrInvalid, errors.Join(errs...))
	}
	if c.Data, err = filepath.Abs(c.Data); err != nil {
		return c, fmt.Errorf("%w: data: %w", ErrInvalid, err)
	}
	return c, nil
}

// Loopback tells whether the server listens on loopback only.
func (c Config) Loopback() bool {
	host, _, err := net.SplitHostPort(c.Listen)
	return err == nil && loopback(host)
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// Print writes every setting with its value, where that came from, its unit and its meaning. The
// database's password is masked.
func (c Config) Print(fs *pflag.FlagSet) string {
	values := map[string]string{
		"listen": c.Listen, "data": c.Data, "database": Masked(c.Database), "admin-password-file": c.AdminPasswordFile, "log-level": c.LogLevel, "log-format": c.LogFormat,
		"allow-plain-http": strconv.FormatBool(c.AllowPlainHTTP), "behind-tls-proxy": strconv.FormatBool(c.BehindTLSProxy), "advertise-addr": c.AdvertiseAddr, "base-path": c.BasePath, "debug-listen": c.DebugListen,
		"executor-heartbeat": c.Heartbeat.String(), "executor-probe-delay": c.ProbeDelay.String(), "executor-lease": c.Lease.String(), "dispatch-ack-timeout": c.AckTimeout.String(),
		"executor-storm-percent": strconv.Itoa(c.StormPercent), "executor-storm-window": c.StormWindow.String(), "redispatch-limit": strconv.Itoa(c.RedispatchLimit),
		"dispatch-executor-wait": c.ExecutorWait.String(), "dispatch-wait-limit": c.WaitLimit.String(), "dispatch-per-request": strconv.Itoa(c.PerRequest), "delayed-in-memory": strconv.Itoa(c.DelayedInMemory), "history-retention": c.Retention.String(), "output-retention": c.OutputRetention.String(), "output-limit": strconv.Itoa(c.OutputLimit), "output-per-day": strconv.Itoa(c.OutputPerDay), "drain-delay": c.DrainDelay.String(),
	}
	var b strings.Builder
	for _, s := range Settings() {
		fmt.Fprintf(&b, "# %s\n# %s. Default %q. From: %s. Environment: %s\n%s: %s\n\n", s.Help, s.Unit, s.Default, c.from[s.Key], Env(s.Key), s.Key, strconv.Quote(values[s.Key]))
	}
	return b.String()
}

// Masked is a DSN without its password.
func Masked(dsn string) string {
	at := strings.LastIndex(dsn, "@")
	scheme := strings.Index(dsn, "://")
	if at < 0 || scheme < 0 || scheme+3 > at {
		return dsn
	}
	user, _, _ := strings.Cut(dsn[scheme+3:at], ":")
	return dsn[:scheme+3] + user + ":***" + dsn[at:]
}
