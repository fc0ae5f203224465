// Package httpx is what every HTTP face of ax-server shares: who asks, in what language, and
// how an error becomes an answer. It is the only place that knows which error is which status.
package httpx

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/ax-scheduler/ax/internal/auth"
	"github.com/ax-scheduler/ax/internal/batch"
	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/message"
	"github.com/ax-scheduler/ax/internal/outcome"
	"github.com/ax-scheduler/ax/internal/store"
	"github.com/ax-scheduler/ax/internal/trigger"
)

// Caller is who asks.
type Caller struct {
	Principal auth.Principal
	Known     bool
	IP        string
	RequestID string
	Language  string
}

type callerKey struct{}

// WithCaller puts the caller into the context.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf is who asks; the zero value outside a request.
func CallerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

// NewRequestID makes an id that is in the answer and in the log.
func NewRequestID() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// Problem is an error answer (RFC 9457) in the caller's language.
type Problem struct {
	Type      string             `json:"type"`
	Title     string             `json:"title"`
	Status    int                `json:"status"`
	Detail    string             `json:"detail"`
	Code      string             `json:"code" doc:"stable, in snake case"`
	RequestID string             `json:"requestId,omitempty"`
	Errors    []*message.Invalid `json:"errors,omitempty" doc:"one entry per field that is refused"`
	BatchID   string             `json:"batchId,omitempty" doc:"the batch that exists already"`

	retryAfter time.Duration
}

// Error is the code and the detail.
func (p *Problem) Error() string { return p.Code + ": " + p.Detail }

// GetStatus is huma's.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType is huma's.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

// GetHeaders is huma's: Retry-After where the problem passes.
func (p *Problem) GetHeaders() http.Header {
	h := http.Header{}
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int((p.retryAfter+time.Second-1)/time.Second)))
	}
	return h
}

// NewProblem makes a problem in the language of the context's caller.
func NewProblem(ctx context.Context, status int, code string, text message.Text, fields ...*message.Invalid) *Problem {
	c := CallerOf(ctx)
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: text.In(c.Language), Code: code, RequestID: c.RequestID, Errors: fields}
}

// Invalid makes the problem of one refused field.
func Invalid(ctx context.Context, code, field, token, en, zh string) *Problem {
	return NewProblem(ctx, http.StatusUnprocessableEntity, "invalid", refusedText(), &message.Invalid{Code: code, Field: field, Token: token, Message: message.Text{EN: en, ZH: zh}})
}

func refusedText() message.Text {
	return message.Text{EN: "Some values were refused; nothing was changed.", ZH: "有内容未通过校验，未做任何修改。"}
}

// Map makes an answer of an error. ok is false for an error that is not the caller's
// business: it is logged and answered as 500.
func Map(ctx context.Context, err error) (p *Problem, ok bool) {
	make := func(status int, code, en, zh string, fields ...*message.Invalid) (*Problem, bool) {
		return NewProblem(ctx, status, code, message.Text{EN: en, ZH: zh}, fields...), true
	}
	var already *Problem
	var fields *job.InvalidError
	var one *message.Invalid
	var throttled *auth.ThrottledError
	var taken *trigger.TakenError
	var ended *batch.EndedError
	switch {
	case errors.As(err, &already):
		return already, true
	case errors.As(err, &fields):
		return NewProblem(ctx, http.StatusUnprocessableEntity, "invalid", refusedText(), fields.Fields...), true
	case errors.As(err, &one):
		return NewProblem(ctx, http.StatusUnprocessableEntity, "invalid", refusedText(), one), true
	case errors.Is(err, store.ErrNotFound):
		return make(http.StatusNotFound, "not_found", "There is no such thing here.", "没有找到。")
	case errors.Is(err, store.ErrStale):
		return make(http.StatusConflict, "stale_version", "It was changed meanwhile; read it again.", "内容已被他人修改，请重新读取后再试。")
	case errors.Is(err, store.ErrLastKey):
		return make(http.StatusConflict, "last_key", "The app would have no lasting key; make another first.", "该应用将没有长期有效的密钥，请先新建一个。")
	case errors.Is(err, store.ErrLastAdmin):
		return make(http.StatusConflict, "last_admin", "The platform needs an administrator who is active; give somebody else that role first.", "平台至少需要一名有效的管理员，请先将该角色授予他人。")
	case errors.Is(err, store.ErrExists):
		return make(http.StatusConflict, "exists", "The name is taken.", "该名称已被占用。")
	case errors.As(err, &ended):
		return make(http.StatusConflict, "already_ended", "It has ended already: "+string(ended.State)+".", "已经结束："+string(ended.State)+"。")
	case errors.Is(err, batch.ErrNotAllowed):
		return make(http.StatusConflict, "not_allowed_in_state", "Its state does not allow this (any more); look at it again.", "当前状态不允许此操作，请刷新后查看。")
	case errors.Is(err, trigger.ErrKeyReused):
		return make(http.StatusConflict, "key_reused", "This idempotency key was used for another request.", "该幂等键已用于其他请求。")
	case errors.As(err, &taken):
		p, _ := make(http.StatusConflict, "key_taken", "A task with this key exists.", "该业务键的任务已存在。")
		p.BatchID = taken.BatchID
		return p, true
	case errors.As(err, &throttled):
		p, _ := make(http.StatusTooManyRequests, "throttled", "The name or the password is wrong, or there were too many attempts.", "用户名或密码错误，或尝试次数过多。")
		p.retryAfter = throttled.RetryAfter
		return p, true
	case errors.Is(err, auth.ErrCredentials):
		return make(http.StatusUnauthorized, "bad_credentials", "The name or the password is wrong, or there were too many attempts.", "用户名或密码错误，或尝试次数过多。")
	case errors.Is(err, auth.ErrToken):
		return make(http.StatusUnauthorized, "bad_token", "Log in again.", "请重新登录。")
	case errors.Is(err, auth.ErrSetupDone):
		return make(http.StatusGone, "setup_done", "The set-up was done already; log in.", "初始设置已完成，请登录。")
	case errors.Is(err, auth.ErrBusy), errors.Is(err, outcome.ErrBusy), errors.Is(err, trigger.ErrBusy):
		p, _ := make(http.StatusServiceUnavailable, "busy", "Too much is waiting; try again in a moment.", "当前繁忙，请稍后重试。")
		p.retryAfter = time.Second
		return p, true
	case errors.Is(err, outcome.ErrNotOwner), errors.Is(err, store.ErrFenced):
		p, _ := make(http.StatusServiceUnavailable, "not_owner", "No server owns this namespace right now; try again in a moment.", "该命名空间暂无调度节点负责，请稍后重试。")
		p.retryAfter = time.Second
		return p, true
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		p, _ := make(http.StatusServiceUnavailable, "database_unavailable", "The database can not be reached; nothing is known to be changed. Try again.", "数据库暂不可用，未确认任何修改，请稍后重试。")
		p.retryAfter = 2 * time.Second
		return p, true
	}
	return NewProblem(ctx, http.StatusInternalServerError, "internal", message.Text{
		EN: "The server met an error; its log has it under the request id.", ZH: "服务器发生错误，可凭请求编号在日志中查找。",
	}), false
}

var (
	missingProperty = regexp.MustCompile(`^expected required property (\S+) to be present`)
	locationPrefix  = regexp.MustCompile(`^(body|query|path|header|cookie)\.?`)
)

// FromHuma makes a problem of what huma refuses by itself: bodies and parameters that do not fit
// their declaration.
func FromHuma(ctx context.Context, status int, msg string, errs ...error) *Problem {
	var fields []*message.Invalid
	for _, err := range errs {
		if err == nil {
			continue
		}
		if inv, ok := errors.AsType[*message.Invalid](err); ok {
			fields = append(fields, inv)
			continue
		}
		detail := &huma.ErrorDetail{Message: err.Error()}
		if d, ok := err.(huma.ErrorDetailer); ok {
			detail = d.ErrorDetail()
		}
		field := locationPrefix.ReplaceAllString(detail.Location, "")
		f := &message.Invalid{Code: "not_understood", Field: field, Message: message.Text{EN: sentence(detail.Message), ZH: "该项不符合要求：" + detail.Message + "。"}}
		if s, ok := detail.Value.(string); ok && len(s) <= 200 {
			f.Token = s
		}
		switch {
		case missingProperty.MatchString(detail.Message):
			f.Code = "required"
			f.Field = strings.TrimPrefix(field+"."+missingProperty.FindStringSubmatch(detail.Message)[1], ".")
			f.Message = message.Text{EN: "This is required.", ZH: "此项必填。"}
		case detail.Message == "unexpected property":
			f.Code, f.Message = "unknown_field", message.Text{EN: "There is no such field.", ZH: "没有这个字段。"}
		}
		fields = append(fields, f)
	}
	text, code := refusedText(), "invalid"
	if len(fields) == 0 {
		text, code = message.Text{EN: sentence(msg), ZH: "请求未被接受：" + msg + "。"}, "refused"
	}
	switch status {
	case http.StatusUnauthorized:
		code, text = "bad_token", message.Text{EN: "Log in again.", ZH: "请重新登录。"}
	case http.StatusRequestEntityTooLarge:
		code, text = "too_large", message.Text{EN: "The body is too large.", ZH: "请求体过大。"}
	}
	return NewProblem(ctx, status, code, text, fields...)
}

func sentence(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:] + "."
}
