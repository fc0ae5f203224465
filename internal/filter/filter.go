// Package filter decides by an expression in CEL whether an event fires a job. It knows the event
// and nothing else; its cost is bounded.
package filter

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/cel"

	"github.com/ax-scheduler/ax/internal/message"
)

const (
	// MaxText bounds an expression, in characters.
	MaxText = 1024
	// maxCost bounds one evaluation in CEL's units: about one for each step and for each ten characters that a
	// function looks at. An event of 64 KiB is looked through several times within it.
	maxCost = 100_000
)

// Filter is a compiled expression. It is immutable and safe for concurrent use.
type Filter struct{ program cel.Program }

// ErrFailed says that an expression could not be evaluated on an event: a field is missing, types do not
// fit, or it took too long.
var ErrFailed = errors.New("the filter could not be evaluated")

// Compile reads an expression. It sees `event`, the body of the event, and must yield true or false.
func Compile(text string) (*Filter, *message.Invalid) {
	refuse := func(code, token, en, zh string) *message.Invalid {
		return &message.Invalid{Code: code, Field: "filter", Token: token, Message: message.Text{EN: en, ZH: zh}}
	}
	if n := utf8.RuneCountInString(text); n > MaxText {
		return nil, refuse("too_long", "", fmt.Sprintf("At most %d characters; got %d.", MaxText, n), fmt.Sprintf("最多 %d 个字符，当前 %d 个。", MaxText, n))
	}
	env, err := cel.NewEnv(cel.Variable("event", cel.DynType), cel.OptionalTypes())
	if err != nil {
		return nil, refuse("not_understood", "", err.Error()+".", err.Error()+"。")
	}
	ast, issues := env.Compile(text)
	if err := issues.Err(); err != nil {
		what := "not understood"
		if list := issues.Errors(); len(list) > 0 {
			what = fmt.Sprintf("line %d, column %d: %s", list[0].Location.Line(), list[0].Location.Column()+1, list[0].Message)
		}
		return nil, refuse("not_understood", text, "The filter is not understood: "+what+". Write one such as event.amount > 100.0.", "过滤表达式无法识别："+what+"。示例：event.amount > 100.0。")
	}
	if out := ast.OutputType(); !out.IsExactType(cel.BoolType) && !out.IsExactType(cel.DynType) {
		return nil, refuse("not_a_condition", text, "The filter yields "+out.String()+"; it must yield true or false.", "过滤表达式的结果是 "+out.String()+"，必须为 true 或 false。")
	}
	program, err := env.Program(ast, cel.CostLimit(maxCost), cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return nil, refuse("not_understood", text, err.Error()+".", err.Error()+"。")
	}
	return &Filter{program}, nil
}

// Matches tells whether an event, a JSON text, passes. ErrFailed, with what is wrong in its text, when nobody can tell.
func (f *Filter) Matches(event string) (bool, error) {
	decoder := json.NewDecoder(strings.NewReader(event))
	var value any
	if err := decoder.Decode(&value); err != nil {
		return false, fmt.Errorf("%w: %w", ErrFailed, err)
	}
	out, _, err := f.program.Eval(map[string]any{"event": value})
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrFailed, err)
	}
	passes, ok := out.Value().(bool)
	if !ok {
		return false, fmt.Errorf("%w: it yields %s, not true or false", ErrFailed, out.Type().TypeName())
	}
	return passes, nil
}
