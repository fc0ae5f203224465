// Package message holds sentences in the languages that ax speaks, and the one
// form in which a value that somebody entered is refused.
package message

import "strings"

// Text is one sentence in English and in Chinese. Both are always there.
type Text struct {
	EN string `json:"en"`
	ZH string `json:"zh"`
}

// In returns the sentence in the language that an Accept-Language header or a
// language tag asks for: Chinese for a first tag that starts with "zh", else English.
func (t Text) In(language string) string {
	first, _, _ := strings.Cut(language, ",")
	if strings.HasPrefix(strings.ToLower(strings.TrimSpace(first)), "zh") {
		return t.ZH
	}
	return t.EN
}

// Invalid refuses one value: which field, which token in it, what is allowed, and,
// where there is one, what to write instead. Code is stable and in snake case.
type Invalid struct {
	Code       string `json:"code"`
	Field      string `json:"field"`
	Token      string `json:"token"`
	Message    Text   `json:"message"`
	Suggestion string `json:"suggestion"`
}

// Error is the English sentence after the field's name.
func (e *Invalid) Error() string {
	return e.Field + ": " + e.Message.EN
}
