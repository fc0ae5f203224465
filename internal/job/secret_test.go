package job_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/job"
)

func TestSecretNames(t *testing.T) {
	for _, c := range []struct {
		params string
		names  []string
		ok     bool
	}{
		{"", nil, true},
		{`{"a":"b"}`, nil, true},
		{`{"p":"${secret:db-pass}","q":"x${secret:api.key}y${secret:db-pass}"}`, []string{"db-pass", "api.key"}, true},
		{`${secret:}`, nil, false},
		{`${secret:Upper}`, nil, false},
		{`${secret:a b} ${secret:good}`, []string{"good"}, false},
		{`$ {secret:a} {secret:b} ${SECRET:c} ${other:d}`, nil, true},
		{`${secret:open`, nil, false},
	} {
		names, ok := job.SecretNames(c.params)
		require.Equal(t, c.names, names, c.params)
		require.Equal(t, c.ok, ok, c.params)
	}
}

func TestFillSecrets(t *testing.T) {
	values := map[string]string{"a": "\"quoted\"\n<密码>\\ ${secret:b}", "b": "never"}
	filled := job.FillSecrets(`{"p":"x${secret:a}","n":1,"q":"${secret:unknown}"}`, values)
	var got map[string]any
	require.NoError(t, json.Unmarshal([]byte(filled), &got), "what is JSON stays JSON")
	require.Equal(t, "x"+values["a"], got["p"], "a value is not looked into")
	require.Equal(t, "${secret:unknown}", got["q"])
	require.Equal(t, "pass="+values["a"]+" plain", job.FillSecrets("pass=${secret:a} plain", values), "other text gets the value as it is")
	require.Equal(t, "nothing", job.FillSecrets("nothing", nil))
}
