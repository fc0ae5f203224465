package filter_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/filter"
)

func TestMatches(t *testing.T) {
	const event = `{"type":"order.paid","amount":120.5,"count":3,"tags":["vip","新客"],"user":{"name":"甲"},"none":null}`
	for text, want := range map[string]bool{
		`event.type == "order.paid"`:                              true,
		`event.type.startsWith("order.") && event.amount > 100.0`: true,
		`event.amount > 200.0`:                                    false,
		`"vip" in event.tags`:                                     true,
		`event.user.name == "甲"`:                                  true,
		`has(event.missing) && event.missing == 1.0`:              false,
		`event.tags.exists(t, t.contains("客"))`:                   true,
		`event.none == null`:                                      true,
		`event.count == 3.0`:                                      true,
		`event.count == 3`:                                        true,
		`event.?user.?name.orValue("") == "甲"`:                    true,
		`event.type.matches("^order\\.[a-z]+$")`:                  true,
	} {
		f, refused := filter.Compile(text)
		require.Nil(t, refused, text)
		got, err := f.Matches(event)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
}

func TestWhatIsNoConditionIsRefused(t *testing.T) {
	for text, code := range map[string]string{
		`event.amount >`:           "not_understood",
		`amount > 1`:               "not_understood",
		`1 + 1`:                    "not_a_condition",
		`"yes"`:                    "not_a_condition",
		``:                         "not_understood",
		strings.Repeat("x", 2000):  "too_long",
		`event.x == 1 && other(2)`: "not_understood",
	} {
		_, refused := filter.Compile(text)
		require.NotNil(t, refused, text)
		require.Equal(t, code, refused.Code, text)
		require.Equal(t, "filter", refused.Field)
		require.NotEmpty(t, refused.Message.ZH)
	}
	_, refused := filter.Compile("event.a == 1 &&\n  nobody")
	require.Contains(t, refused.Message.EN, "line 2, column 3")
}

func TestWhatCanNotBeToldIsAnError(t *testing.T) {
	for text, event := range map[string]string{
		`event.missing == 1.0`: `{}`,
		`event.a > 1.0`:        `{"a":"text"}`,
		`event.a`:              `{"a":5}`,
	} {
		f, refused := filter.Compile(text)
		require.Nil(t, refused, text)
		_, err := f.Matches(event)
		require.ErrorIs(t, err, filter.ErrFailed, text)
	}
	f, refused := filter.Compile(`event.list.all(a, event.list.all(b, event.list.all(c, a + b + c >= 0.0)))`)
	require.Nil(t, refused)
	_, err := f.Matches(`{"list":[` + strings.Repeat("1,", 2000) + `1]}`)
	require.ErrorIs(t, err, filter.ErrFailed)
	require.ErrorContains(t, err, "cost")
}

func BenchmarkMatches(b *testing.B) {
	f, _ := filter.Compile(`event.type == "order.paid" && event.amount > 100.0`)
	b.ReportAllocs()
	for b.Loop() {
		if ok, err := f.Matches(`{"type":"order.paid","amount":120.5,"tags":["vip"]}`); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}
