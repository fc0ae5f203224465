// Package audit decides how a change is told: what differed between before and after, with
// what may be secret left out. Package store appends the entries.
package audit

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"sort"
	"strings"
)

// Change is one difference.
type Change struct {
	Op   string `json:"op"` // add, remove, replace
	Path string `json:"path"`
	From any    `json:"from,omitempty"`
	To   any    `json:"value,omitempty"`
}

// secretive matches names of fields whose values are not kept.
var secretive = regexp.MustCompile(`(?i)(pass(word|wd)?|secret|token|credential|authorization|private_?key|api_?key|app_?key)`)

// Tell makes the redacted JSON of before and after (nil = there was none) and the list of
// differences, in the order of their paths.
func Tell(before, after any) (beforeJSON, afterJSON, diffJSON *string, err error) {
	b, err := plain(before)
	if err != nil {
		return nil, nil, nil, err
	}
	a, err := plain(after)
	if err != nil {
		return nil, nil, nil, err
	}
	var changes []Change
	if b != nil && a != nil {
		changes = diff("", b, a, changes)
	}
	if beforeJSON, err = text(b); err != nil {
		return nil, nil, nil, err
	}
	if afterJSON, err = text(a); err != nil {
		return nil, nil, nil, err
	}
	if len(changes) > 0 {
		diffJSON, err = text(changes)
	}
	return beforeJSON, afterJSON, diffJSON, err
}

func text(v any) (*string, error) {
	if v == nil {
		return nil, nil //nolint:nilnil // there is no text for nothing
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	s := string(raw)
	return &s, nil
}

// plain turns v into maps and slices, with secrets masked.
func plain(v any) (any, error) {
	if v == nil || reflect.ValueOf(v).Kind() == reflect.Pointer && reflect.ValueOf(v).IsNil() {
		return nil, nil //nolint:nilnil // nothing stays nothing
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	var out any
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	return mask(out), nil
}

// Mask replaces the values of secretive fields by their length, also inside texts that
// are JSON themselves.
func mask(v any) any {
	switch x := v.(type) {
	case map[string]any:
		for k, value := range x {
			if s, ok := value.(string); ok && secretive.MatchString(k) {
				x[k] = fmt.Sprintf("[%d characters]", len([]rune(s)))
				continue
			}
			x[k] = mask(value)
		}
		return x
	case []any:
		for i := range x {
			x[i] = mask(x[i])
		}
		return x
	case string:
		if trimmed := strings.TrimSpace(x); strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, "[") {
			var inner any
			if json.Unmarshal([]byte(trimmed), &inner) == nil {
				before, _ := json.Marshal(inner)
				after, err := json.Marshal(mask(inner))
				if err == nil && string(before) != string(after) {
					return string(after)
				}
			}
		}
		return x
	}
	return v
}

func diff(path string, before, after any, out []Change) []Change {
	b, bok := before.(map[string]any)
	a, aok := after.(map[string]any)
	if !bok || !aok {
		if !reflect.DeepEqual(before, after) {
			out = append(out, Change{Op: "replace", Path: path, From: before, To: after})
		}
		return out
	}
	keys := map[string]bool{}
	for k := range b {
		keys[k] = true
	}
	for k := range a {
		keys[k] = true
	}
	names := make([]string, 0, len(keys))
	for k := range keys {
		names = append(names, k)
	}
	sort.Strings(names)
	for _, k := range names {
		at := path + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(k)
		was, had := b[k]
		is, has := a[k]
		switch {
		case !had:
			out = append(out, Change{Op: "add", Path: at, To: is})
		case !has:
			out = append(out, Change{Op: "remove", Path: at, From: was})
		default:
			out = diff(at, was, is, out)
		}
	}
	return out
}
