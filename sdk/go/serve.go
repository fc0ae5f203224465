package ax

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"
)

// maxAtOnce bounds the requests that are served at one time, each holding up to 1 MiB.
const maxAtOnce = 32

// httpServer bounds what a peer can make the executor wait for or hold.
func (ex *Executor) httpServer() *http.Server {
	return &http.Server{
		Handler:           ex.routes(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      20 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(ex.log.Handler(), slog.LevelDebug),
	}
}

func (ex *Executor) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+pathRun, ex.signed("run", ex.serveRun))
	mux.HandleFunc("POST "+pathKill, ex.signed("kill", ex.serveKill))
	mux.HandleFunc("POST "+pathProbe, ex.signed("probe", ex.serveProbe))
	unregister := ex.signed("unregister", ex.serveUnregister)
	mux.HandleFunc("POST "+pathUnregister, func(w http.ResponseWriter, r *http.Request) {
		if fromThisHost(r) {
			ex.leave()
			writeJSON(w, http.StatusOK, []byte("{}"))
			return
		}
		unregister(w, r)
	})
	slots := make(chan struct{}, maxAtOnce)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			mux.ServeHTTP(w, r)
		default:
			w.Header().Set("Retry-After", "1")
			refuse(w, http.StatusServiceUnavailable, "unavailable", "too many requests at once")
		}
	})
}

// fromThisHost reports whether r is what a preStop hook sends: from loopback, unsigned, empty,
// not on behalf of somebody else (a proxy), and not from a page in a browser on this host.
func fromThisHost(r *http.Request) bool {
	for _, h := range []string{headerSignature, "Forwarded", "X-Forwarded-For", "Origin", "Sec-Fetch-Site"} {
		if r.Header.Get(h) != "" {
			return false
		}
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback() && r.ContentLength == 0
}

// signed wraps a route: the body is read, at most 1 MiB of it, before anything else; then come
// signature, clock, replay, type and addressee. The reply is signed under the request's id.
func (ex *Executor) signed(kind string, serve func(r *http.Request, body []byte) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			var large *http.MaxBytesError
			if errors.As(err, &large) {
				refuse(w, http.StatusRequestEntityTooLarge, "too_large", "the body is larger than 1 MiB")
			} else {
				refuse(w, http.StatusBadRequest, "bad_request", "the body could not be read")
			}
			return
		}
		now := ex.clock.now()
		id := r.Header.Get(headerID)
		if err := verify(ex.key, id, r.Header.Get(headerTimestamp), r.Header.Get(headerSignature), body, now); err != nil {
			code := "bad_signature"
			if errors.Is(err, errClock) {
				code = "bad_clock"
			}
			ex.refuseMessage(w, r, now, code, err)
			return
		}
		if !ex.seen.take(id, time.Now()) {
			ex.refuseMessage(w, r, now, "replayed", errReplay)
			return
		}
		var h header
		if err := json.Unmarshal(body, &h); err != nil {
			refuse(w, http.StatusBadRequest, "bad_request", "the body is not the JSON object that was expected: "+err.Error())
			return
		}
		if h.Type != kind {
			refuse(w, http.StatusBadRequest, "bad_request", "type is "+strconv.Quote(cut(h.Type, 40))+", this path takes "+kind)
			return
		}
		if h.Namespace != ex.opts.Namespace || h.App != ex.opts.App {
			refuse(w, http.StatusForbidden, "wrong_app", "this executor is of "+ex.opts.Namespace+"/"+ex.opts.App)
			return
		}
		instance := ex.instanceID()
		if kind != "probe" && instance != "" && h.Instance != instance && (kind != "unregister" || h.Instance != "") {
			refuse(w, http.StatusForbidden, "wrong_instance", "this executor is instance "+instance)
			return
		}
		reply, err := serve(r, body)
		if err != nil {
			refuse(w, http.StatusBadRequest, "bad_request", err.Error())
			return
		}
		out, err := json.Marshal(reply)
		if err != nil {
			refuse(w, http.StatusInternalServerError, "internal", "the reply could not be encoded")
			return
		}
		setSignature(w.Header(), ex.key, id, ex.clock.now(), out)
		writeJSON(w, http.StatusOK, out)
	}
}

func (ex *Executor) serveRun(r *http.Request, body []byte) (any, error) {
	m, err := parseRun(body)
	if err != nil {
		return nil, err
	}
	parent := r.Header.Get("Traceparent")
	if len(parent) > 128 {
		parent = ""
	}
	return answersReply{ex.take(m, parent)}, nil
}

func (ex *Executor) serveKill(_ *http.Request, body []byte) (any, error) {
	var m killMessage
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, err
	}
	reply := answersReply{make([]answer, len(m.Executions))}
	for i, k := range m.Executions {
		reply.Answers[i] = answer{ExecutionID: k.ExecutionID, Answer: "unknown"}
		if ex.kill(k.executionRef, k.Reason) {
			reply.Answers[i].Answer = "asked"
		}
	}
	return reply, nil
}

func (ex *Executor) serveProbe(_ *http.Request, body []byte) (any, error) {
	var m probeMessage
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, err
	}
	if m.Nonce == "" || len(m.Nonce) > 128 {
		return nil, errors.New("nonce is empty or longer than 128")
	}
	return probeReply{m.Nonce, ex.opts.Namespace, ex.opts.App, ex.startID, ex.runningRefs()}, nil
}

func (ex *Executor) serveUnregister(*http.Request, []byte) (any, error) {
	ex.leave()
	return struct{}{}, nil
}

// refuseMessage answers 401 and tells our clock, so that the sender can correct its own.
func (ex *Executor) refuseMessage(w http.ResponseWriter, r *http.Request, now time.Time, code string, err error) {
	ex.log.Warn("message refused", slog.String("code", code), slog.String("path", r.URL.Path), slog.String("from", r.RemoteAddr))
	w.Header().Set(headerTime, strconv.FormatInt(now.UnixMilli(), 10))
	refuse(w, http.StatusUnauthorized, code, err.Error())
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	body, _ := json.Marshal(errorReply{code, cut(message, 500)})
	writeJSON(w, status, body)
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the peer is gone: it will ask again
}
