package app

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ax-scheduler/ax/internal/message"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/server/api"
	"github.com/ax-scheduler/ax/server/httpx"
	"github.com/ax-scheduler/ax/server/peer"
	"github.com/ax-scheduler/ax/web"
)

// routes mounts everything on one router. The console comes last: it takes what nobody
// else took.
func (a *App) routes(c api.Config) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.HandleMethodNotAllowed = false
	r.RedirectTrailingSlash = false
	_ = r.SetTrustedProxies(nil)
	r.Use(a.surround)
	a.health(r)
	gated := r.Group("/", a.whenStarted)
	a.executors.Mount(gated)
	gated.POST(peer.PathLook, a.look)
	c.Console = web.Built(web.Dist())
	a.api, _ = api.New(r, c)
	console := web.Handler(web.Options{BasePath: a.config.BasePath, TLS: a.config.BehindTLSProxy})
	r.NoRoute(func(g *gin.Context) {
		if strings.HasPrefix(g.Request.URL.Path, "/api/") || strings.HasPrefix(g.Request.URL.Path, "/ax/") {
			p := httpx.NewProblem(g.Request.Context(), http.StatusNotFound, "not_found", message.Text{EN: "There is no such path.", ZH: "没有这个路径。"})
			g.JSON(p.Status, p)
			return
		}
		g.Status(http.StatusOK)
		console.ServeHTTP(g.Writer, g.Request)
	})
	// A request that a browser sends across sites changes nothing here; programs send no such
	// headers and pass.
	return http.NewCrossOriginProtection().Handler(r)
}

// surround is what every request gets: an id, its caller's address, headers, a measure,
// and an answer even when the code behind it panics.
func (a *App) surround(c *gin.Context) {
	start := time.Now()
	id := httpx.NewRequestID()
	h := c.Writer.Header()
	h.Set("X-Request-Id", id)
	h.Set("X-Content-Type-Options", "nosniff")
	api := strings.HasPrefix(c.Request.URL.Path, "/api/")
	if api {
		h.Set("Cache-Control", "no-store")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
	}
	caller := httpx.Caller{IP: c.RemoteIP(), RequestID: id, Language: c.GetHeader("Accept-Language")}
	ctx := c.Request.Context()
	refused := false
	if c.GetHeader(peer.Header) != "" {
		// Another replica sent it on: who asked it is who asks.
		origin, err := a.peers.Receive(c.Request)
		if refused = err != nil; !refused {
			ctx = peer.WithOrigin(ctx, origin)
			if origin.RequestID != "" {
				caller.IP, caller.RequestID = origin.IP, origin.RequestID
				h.Set("X-Request-Id", origin.RequestID)
			}
		}
	}
	c.Request = c.Request.WithContext(httpx.WithCaller(ctx, caller))
	defer func() {
		if v := recover(); v != nil {
			if v == http.ErrAbortHandler { //nolint:errorlint // the value itself
				panic(v)
			}
			a.log.ErrorContext(c.Request.Context(), "request panicked", slog.String("request_id", id), slog.String("path", c.FullPath()), slog.String("panic", fmt.Sprint(v)))
			if !c.Writer.Written() {
				p, _ := httpx.Map(c.Request.Context(), fmt.Errorf("panic: %v", v))
				c.AbortWithStatusJSON(p.Status, p)
			}
		}
		route := c.FullPath()
		if route == "" {
			route = "console"
		}
		a.metrics.Requests.WithLabelValues(route, c.Request.Method, fmt.Sprint(c.Writer.Status())).Observe(time.Since(start).Seconds())
	}()
	switch {
	case refused:
		h.Set(peer.Header, "refused")
		p := httpx.NewProblem(c.Request.Context(), http.StatusUnauthorized, "bad_peer", message.Text{EN: "The header " + peer.Header + " is for replicas only, and this one is not good.", ZH: "请求头 " + peer.Header + " 仅供副本之间使用，且校验未通过。"})
		c.Header("Content-Type", "application/problem+json")
		c.AbortWithStatusJSON(p.Status, p)
		return
	case api && !a.started.Load():
		a.notStarted(c)
		return
	case api && time.Since(time.UnixMilli(a.reached.Load())) > hopelessAfter:
		// Who asks now would only wait in vain: the database has not answered for a while.
		p, _ := httpx.Map(c.Request.Context(), store.ErrUnavailable)
		c.Header("Retry-After", "2")
		c.Header("Content-Type", "application/problem+json")
		c.AbortWithStatusJSON(p.Status, p)
		return
	}
	if !strings.HasSuffix(c.Request.URL.Path, "/stream") {
		limited, cancel := context.WithTimeout(c.Request.Context(), requestLimit)
		defer cancel()
		c.Request = c.Request.WithContext(limited)
	}
	c.Next()
}

// look is what another replica asks for when something has become this one's.
func (a *App) look(c *gin.Context) {
	if _, ok := peer.OriginOf(c.Request.Context()); !ok {
		c.Status(http.StatusNotFound)
		return
	}
	a.cluster.Nudge()
	a.executors.Look()
	c.Status(http.StatusNoContent)
}

// whenStarted keeps executors waiting until the database is there.
func (a *App) whenStarted(c *gin.Context) {
	if !a.started.Load() {
		a.notStarted(c)
	}
}

func (a *App) notStarted(c *gin.Context) {
	c.Header("Retry-After", "1")
	p := httpx.NewProblem(c.Request.Context(), http.StatusServiceUnavailable, "starting", message.Text{
		EN: "The server waits for its database; try again in a moment.", ZH: "服务器正在等待数据库，请稍后重试。",
	})
	c.Header("Content-Type", "application/problem+json")
	c.AbortWithStatusJSON(p.Status, p)
}

// health serves what operators' tools ask. /livez never asks the database: a server that waits
// for it must not be restarted for that.
func (a *App) health(r *gin.Engine) {
	state := func() (ok bool, why string) {
		trouble, _ := a.trouble.Load().(string)
		switch {
		case a.draining.Load():
			return false, "draining"
		case !a.started.Load():
			return false, trouble
		case time.Since(time.UnixMilli(a.reached.Load())) > readyFor:
			return false, trouble
		case !a.cluster.Settled():
			return false, "buckets are being taken"
		case !a.auth.Fresh():
			return false, "rights could not be read for 30 s"
		}
		return true, ""
	}
	answer := func(c *gin.Context, up bool, why string) {
		status, word := http.StatusOK, "UP"
		if !up {
			status, word = http.StatusServiceUnavailable, "DOWN"
		}
		body := gin.H{"status": word}
		if why != "" {
			body["reason"] = coarse(why)
		}
		c.Header("Cache-Control", "no-store")
		c.JSON(status, body)
	}
	r.GET("/livez", func(c *gin.Context) { answer(c, true, "") })
	r.GET("/startupz", func(c *gin.Context) { answer(c, a.started.Load(), "") })
	ready := func(c *gin.Context) {
		up, why := state()
		answer(c, up, why)
	}
	r.GET("/readyz", ready)
	r.GET("/actuator/health", ready)
	metrics := gin.WrapH(promhttp.HandlerFor(a.metrics.Registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	r.GET("/metrics", metrics)
	r.GET("/actuator/prometheus", metrics)
}

// coarse keeps addresses and user names of the database out of an answer that anybody
// may read; the log has them.
func coarse(why string) string {
	switch {
	case why == "draining", strings.HasPrefix(why, "buckets"), strings.HasPrefix(why, "rights"), strings.HasPrefix(why, "the database"):
		return why
	case strings.Contains(why, "read-only"):
		return "the database is read-only"
	}
	return "the database can not be reached"
}
