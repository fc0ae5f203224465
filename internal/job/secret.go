package job

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/ax-scheduler/ax/internal/message"
)

const (
	// MaxSecrets bounds the references to secrets in a job's parameters.
	MaxSecrets = 20
	// MinSecret bounds a secret's length in bytes: shorter ones could not be masked in output without taking innocent
	// words with them.
	MinSecret = 6
	// MaxSecret bounds it upwards.
	MaxSecret = 4096

	secretOpen = "${secret:"
)

var secretRef = regexp.MustCompile(`\$\{secret:([a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?)\}`)

// SecretNames lists the secrets that parameters name as ${secret:name}, each once, in their order. ok is false when
// something begins like such a reference and is none.
func SecretNames(params string) (names []string, ok bool) {
	if !strings.Contains(params, secretOpen) {
		return nil, true
	}
	found := secretRef.FindAllStringSubmatch(params, -1)
	for _, m := range found {
		if !slices.Contains(names, m[1]) {
			names = append(names, m[1])
		}
	}
	return names, len(found) == strings.Count(params, secretOpen)
}

// ValidSecrets checks the references to secrets in parameters.
func ValidSecrets(field, params string) *message.Invalid {
	_, ok := SecretNames(params)
	if !ok {
		return &message.Invalid{Code: "bad_secret", Field: field, Token: secretOpen, Suggestion: "${secret:db-password}", Message: message.Text{
			EN: "A secret is named as ${secret:name}; a name has at most 64 of a-z, 0-9, '.', '_', '-' and begins and ends with a letter or digit.",
			ZH: "引用密钥请写成 ${secret:名称}；名称最多 64 个字符，只含 a-z、0-9、“.”、“_”、“-”，首尾须为字母或数字。",
		}}
	}
	if n := strings.Count(params, secretOpen); n > MaxSecrets {
		return &message.Invalid{Code: "too_many", Field: field, Token: fmt.Sprint(n), Message: message.Text{
			EN: fmt.Sprintf("At most %d references to secrets; got %d.", MaxSecrets, n), ZH: fmt.Sprintf("最多引用 %d 次密钥，当前 %d 次。", MaxSecrets, n),
		}}
	}
	return nil
}

// FillSecrets puts values in the place of the references. In parameters that are JSON a value is written as the
// inside of a string. A reference without a value stays as it is.
func FillSecrets(params string, values map[string]string) string {
	isJSON := json.Valid([]byte(params))
	return secretRef.ReplaceAllStringFunc(params, func(ref string) string {
		value, ok := values[ref[len(secretOpen):len(ref)-1]]
		if !ok {
			return ref
		}
		if !isJSON {
			return value
		}
		var b strings.Builder
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		_ = e.Encode(value) // a string
		return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSuffix(b.String(), "\n"), `"`), `"`)
	})
}
