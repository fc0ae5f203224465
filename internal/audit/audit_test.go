package audit_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ax-scheduler/ax/internal/audit"
)

func TestTell(t *testing.T) {
	type job struct {
		Name   string         `json:"name"`
		Params string         `json:"params"`
		Limit  int            `json:"limit"`
		More   map[string]any `json:"more,omitempty"`
	}
	before := job{Name: "a", Params: `{"day":1}`, Limit: 5}
	after := job{Name: "a", Params: `{"day":2}`, Limit: 5, More: map[string]any{"x/y~z": 1}}
	b, a, d, err := audit.Tell(before, after)
	require.NoError(t, err)
	require.JSONEq(t, `{"name":"a","params":"{\"day\":1}","limit":5}`, *b)
	require.JSONEq(t, `{"name":"a","params":"{\"day\":2}","limit":5,"more":{"x/y~z":1}}`, *a)
	require.JSONEq(t, `[{"op":"add","path":"/more","value":{"x/y~z":1}},{"op":"replace","path":"/params","from":"{\"day\":1}","value":"{\"day\":2}"}]`, *d)

	b, a, d, err = audit.Tell(nil, after)
	require.NoError(t, err)
	require.Nil(t, b)
	require.NotNil(t, a)
	require.Nil(t, d, "what begins has no difference")
	b, a, d, err = audit.Tell((*job)(nil), nil)
	require.NoError(t, err)
	require.Nil(t, b)
	require.Nil(t, a)
	require.Nil(t, d)
	_, _, d, err = audit.Tell(before, before)
	require.NoError(t, err)
	require.Nil(t, d)
	_, _, d, err = audit.Tell(map[string]any{"m": map[string]any{"x/y~z": 1}}, map[string]any{"m": map[string]any{}})
	require.NoError(t, err)
	require.JSONEq(t, `[{"op":"remove","path":"/m/x~1y~0z","from":1}]`, *d)
}

func TestSecretsAreMasked(t *testing.T) {
	const secret = "hunter2-geheim"
	for _, key := range []string{"password", "Passwd", "pass", "client_secret", "accessToken", "credential", "Authorization", "private_key", "privateKey", "api_key", "apiKey", "appKey"} {
		t.Run(key, func(t *testing.T) {
			inner, err := json.Marshal(map[string]any{key: secret})
			require.NoError(t, err)
			for name, v := range map[string]any{
				"at the top":               map[string]any{key: secret},
				"deep":                     map[string]any{"a": []any{map[string]any{key: secret}}},
				"in a text that is JSON":   map[string]any{"params": string(inner)},
				"in a list in such a text": map[string]any{"params": "[" + string(inner) + "]"},
				"in a text in such a text": map[string]any{"params": string(mustJSON(t, map[string]any{"x": string(inner)}))},
				"after blanks in the text": map[string]any{"params": " \n" + string(inner)},
			} {
				b, a, d, err := audit.Tell(map[string]any{"params": "was"}, v)
				require.NoError(t, err, name)
				for _, s := range []*string{b, a, d} {
					if s != nil {
						require.NotContains(t, *s, secret, name)
					}
				}
				require.Contains(t, *a, "characters]", name)
			}
		})
	}
	// Only texts are masked, and other fields stay.
	_, a, _, err := audit.Tell(nil, map[string]any{"tokens": 5, "name": "pass the salt", "password": ""})
	require.NoError(t, err)
	require.JSONEq(t, `{"tokens":5,"name":"pass the salt","password":"[0 characters]"}`, *a)
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	require.NoError(t, err)
	return raw
}

// The differences, applied to what was, give what is.
func TestDifferencesLeadFromBeforeToAfter(t *testing.T) {
	gen := rapid.Custom(func(t *rapid.T) map[string]any {
		m := map[string]any{}
		for _, k := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d/e", "f~g"}), func(s string) string { return s }).Draw(t, "keys") {
			if rapid.Bool().Draw(t, "nested") {
				m[k] = map[string]any{"x": rapid.IntRange(0, 3).Draw(t, "x"), rapid.SampledFrom([]string{"y", "z"}).Draw(t, "k"): rapid.String().Draw(t, "s")}
			} else {
				m[k] = float64(rapid.IntRange(0, 3).Draw(t, "n"))
			}
		}
		return m
	})
	rapid.Check(t, func(t *rapid.T) {
		before, after := gen.Draw(t, "before"), gen.Draw(t, "after")
		b, a, d, err := audit.Tell(before, after)
		require.NoError(t, err)
		if d == nil {
			require.JSONEq(t, *b, *a)
			return
		}
		var changes []audit.Change
		require.NoError(t, json.Unmarshal([]byte(*d), &changes))
		var doc map[string]any
		require.NoError(t, json.Unmarshal([]byte(*b), &doc))
		for _, c := range changes {
			apply(t, doc, c)
		}
		got, err := json.Marshal(doc)
		require.NoError(t, err)
		require.JSONEq(t, *a, string(got))
	})
}

// apply carries out one change of a JSON Patch, as far as Tell writes them.
func apply(t *rapid.T, doc map[string]any, c audit.Change) {
	parts := strings.Split(c.Path, "/")[1:]
	for i := range parts {
		parts[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(parts[i])
	}
	at := doc
	for _, p := range parts[:len(parts)-1] {
		next, ok := at[p].(map[string]any)
		require.True(t, ok, c.Path)
		at = next
	}
	last := parts[len(parts)-1]
	if c.Op == "remove" {
		delete(at, last)
		return
	}
	at[last] = c.To
}
