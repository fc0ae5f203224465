package routing_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ax-scheduler/ax/internal/routing"
)

func TestSelectors(t *testing.T) {
	x := routing.Candidate{ID: 1, Address: "http://10.0.16.7:9999", Labels: map[string]string{"zone": "a", "gpu": "", "cores": "16", "db": "vip", "机房": "上海"}}
	tests := []struct {
		selector string
		passes   bool
	}{
		{"", true},
		{"zone in (a, b), gpu, !spot", true},
		{"zone in (b,c)", false},
		{"zone=a", true},
		{"zone == a", true},
		{"zone = b", false},
		{"zone != b", true},
		{"rack != r1", true}, // as with Kubernetes: it does not have the label
		{"rack notin (r1)", true},
		{"zone notin (a)", false},
		{"gpu", true},
		{"!gpu", false},
		{"rack", false},
		{"cores > 8", true},
		{"cores > 16", false},
		{"cores < 16.5", true},
		{"zone > 1", false},
		{"机房 = 上海", true},
		{"address in (10.0.16.0/24)", true},
		{"address in (10.0.17.0/24, 10.0.16.7)", true},
		{"address in (10.0.16.*)", true},
		{"address in (10.1.*)", false},
		{"address notin (10.0.16.0/24)", false},
		{"address != 10.0.16.8", true},
		{"db = vip, address in (10.0.16.0/24)", true},
		{"db = vip, address in (10.0.17.0/24)", false},
	}
	r := routing.New()
	for _, tt := range tests {
		t.Run(tt.selector, func(t *testing.T) {
			s, bad := routing.ParseSelector(tt.selector)
			require.Nil(t, bad)
			_, ok := s.Matches(x)
			require.Equal(t, tt.passes, ok)
			got := r.Pick(routing.Request{Strategy: routing.First, Selector: tt.selector}, []routing.Candidate{x})
			if tt.passes {
				require.Equal(t, []int64{1}, got.Order)
			} else {
				require.Empty(t, got.Order)
				require.Equal(t, routing.BarSelector, got.Filtered[1])
			}
		})
	}
	for _, address := range []string{"http://[::1]:9999/", "http://[::ffff:10.0.16.9]:1", "http://db-vip-1:80"} {
		s, bad := routing.ParseSelector("address in (::1, 10.0.16.0/24, db-vip-1)")
		require.Nil(t, bad)
		_, ok := s.Matches(routing.Candidate{Address: address})
		require.True(t, ok, address)
	}
}

func TestWhatIsNoSelectorIsRefusedWithItsPlace(t *testing.T) {
	for text, token := range map[string]string{
		"zone in a":                     "a",
		"zone in (a":                    "",
		"zone in ()":                    ")",
		", zone":                        ",",
		"zone,":                         "",
		"zone a":                        "a",
		"!":                             "",
		"zone = ":                       "",
		"cores > many":                  "many",
		"address in (10.0.16.0/33)":     "10.0.16.0/33",
		"address > 3":                   "3",
		"zone in (a, b)) ":              ")",
		"address in (300.0.0.0/8, ::1)": "300.0.0.0/8",
	} {
		bad := routing.CheckSelector(text)
		require.NotNil(t, bad, text)
		require.Equal(t, token, bad.Token, text)
		require.NotEmpty(t, bad.Message.EN, text)
		require.NotEmpty(t, bad.Message.ZH, text)
	}
}

// Whatever somebody writes is read or refused, never worse.
func TestSelectorsOfAnyTextDoNoHarm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-z1 ,()!=<>./*:]{0,40}`).Draw(t, "text")
		s, bad := routing.ParseSelector(text)
		require.NotEqual(t, s == nil, bad == nil)
		if s != nil {
			s.Matches(routing.Candidate{Address: "http://10.0.0.1:1", Labels: map[string]string{"a": "1"}})
		}
	})
}
