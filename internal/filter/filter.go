// Package filter evaluates short expressions in CEL that somebody wrote into a job: whether an event fires
// it, and which executors may run it. It knows what it is given and nothing else; cost and time are bounded.
package filter

import (
	"context"
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
	// ruleCost bounds the evaluation of a rule on one executor: it runs where work is handed out.
	ruleCost = 10_000
	// lookEvery is after how many steps of a loop an evaluation looks whether its time is over.
	lookEvery = 100
)

// Filter is a compiled expression on an event. It is immutable and safe for concurrent use.
type Filter struct{ program cel.Program }

// ErrFailed says that an expression could not be evaluated: a field is missing, types do not
// fit, or it took too long.
var ErrFailed = errors.New("the filter could not be evaluated")

// form is what one kind of expression is: where it stands, what it sees and what it yields.
type form struct {
	field   string
	what    message.Text // its name in a sentence
	example string
	yields  message.Text
	types   []*cel.Type
	cost    uint64
	sees    []string
}

func events() form {
	return form{
		field: "filter", what: message.Text{EN: "filter", ZH: "过滤表达式"}, example: "event.amount > 100.0", yields: message.Text{EN: "true or false", ZH: " true 或 false"},
		types: []*cel.Type{cel.BoolType}, cost: maxCost, sees: []string{"event"},
	}
}

func rules() form {
	return form{
		field: "rule", what: message.Text{EN: "rule", ZH: "路由规则"}, example: `executor.labels.zone == params.zone`, yields: message.Text{EN: "true, false or a number", ZH: " true、false 或数字"},
		types: []*cel.Type{cel.BoolType, cel.IntType, cel.UintType, cel.DoubleType}, cost: ruleCost, sees: []string{"executor", "job", "params", "shard", "total"},
	}
}

func (f form) compile(text string) (cel.Program, *message.Invalid) {
	refuse := func(code, token, en, zh string) *message.Invalid {
		return &message.Invalid{Code: code, Field: f.field, Token: token, Message: message.Text{EN: en, ZH: zh}}
	}
	if n := utf8.RuneCountInString(text); n > MaxText {
		return nil, refuse("too_long", "", fmt.Sprintf("At most %d characters; got %d.", MaxText, n), fmt.Sprintf("最多 %d 个字符，当前 %d 个。", MaxText, n))
	}
	options := []cel.EnvOption{cel.OptionalTypes()}
	for _, name := range f.sees {
		options = append(options, cel.Variable(name, cel.DynType))
	}
	env, err := cel.NewEnv(options...)
	if err != nil {
		return nil, refuse("not_understood", "", err.Error()+".", err.Error()+"。")
	}
	ast, issues := env.Compile(text)
	if err := issues.Err(); err != nil {
		what := "not understood"
		if list := issues.Errors(); len(list) > 0 {
			what = fmt.Sprintf("line %d, column %d: %s", list[0].Location.Line(), list[0].Location.Column()+1, list[0].Message)
		}
		return nil, refuse("not_understood", text, "The "+f.what.EN+" is not understood: "+what+". Write one such as "+f.example+".", f.what.ZH+"无法识别："+what+"。示例："+f.example+"。")
	}
	out := ast.OutputType()
	fits := out.IsExactType(cel.DynType)
	for _, t := range f.types {
		fits = fits || out.IsExactType(t)
	}
	if !fits {
		code := "not_a_condition"
		if len(f.types) > 1 {
			code = "not_a_rule"
		}
		return nil, refuse(code, text, "The "+f.what.EN+" yields "+out.String()+"; it must yield "+f.yields.EN+".", f.what.ZH+"的结果是 "+out.String()+"，必须为"+f.yields.ZH+"。")
	}
	program, err := env.Program(ast, cel.CostLimit(f.cost), cel.InterruptCheckFrequency(lookEvery), cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return nil, refuse("not_understood", text, err.Error()+".", err.Error()+"。")
	}
	return program, nil
}

// Compile reads an expression. It sees `event`, the body of the event, and must yield true or false.
func Compile(text string) (*Filter, *message.Invalid) {
	program, bad := events().compile(text)
	if bad != nil {
		return nil, bad
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

// Rule is a compiled expression on an executor. It is immutable and safe for concurrent use.
type Rule struct{ program cel.Program }

// CompileRule reads an expression on an executor: `executor`, `job`, `params`, `shard` and `total` are
// there. True and false let an executor pass or not; a number ranks it, the highest first.
func CompileRule(text string) (*Rule, *message.Invalid) {
	program, bad := rules().compile(text)
	if bad != nil {
		return nil, bad
	}
	return &Rule{program}, nil
}

// Verdict is what a rule says of an executor.
type Verdict struct {
	Passes bool
	// Ranks says that the rule gave a number, which is Rank.
	Ranks bool
	Rank  float64
}

// Judge evaluates a rule until ctx ends. ErrFailed, with what is wrong in its text, when nobody can tell.
func (r *Rule) Judge(ctx context.Context, sees map[string]any) (Verdict, error) {
	out, _, err := r.program.ContextEval(ctx, sees)
	if err != nil {
		return Verdict{}, fmt.Errorf("%w: %w", ErrFailed, err)
	}
	switch v := out.Value().(type) {
	case bool:
		return Verdict{Passes: v}, nil
	case int64:
		return Verdict{Passes: true, Ranks: true, Rank: float64(v)}, nil
	case uint64:
		return Verdict{Passes: true, Ranks: true, Rank: float64(v)}, nil
	case float64:
		if v == v { // what is no number ranks nothing
			return Verdict{Passes: true, Ranks: true, Rank: v}, nil
		}
	}
	return Verdict{}, fmt.Errorf("%w: it yields %s, not true, false or a number", ErrFailed, out.Type().TypeName())
}
