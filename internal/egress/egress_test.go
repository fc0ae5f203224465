package egress_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ax-scheduler/ax/internal/egress"
	"github.com/ax-scheduler/ax/internal/message"
)

func rules(t *testing.T, list ...string) []egress.Rule {
	t.Helper()
	out, err := egress.ParseRules(list)
	require.NoError(t, err)
	return out
}

// T-SSRF-1: addresses that nobody's rules can open, in every spelling that a dialler may see.
func TestWhatNobodyMayReach(t *testing.T) {
	p := egress.NewPolicy([]netip.AddrPort{netip.MustParseAddrPort("10.0.0.5:3306"), netip.MustParseAddrPort("0.0.0.0:8081")}, false)
	all := rules(t, "0.0.0.0/0:*", "[::]/0:*")
	for _, to := range []string{
		// The hosts' metadata.
		"169.254.169.254:80", "169.254.170.2:80", "169.254.0.1:443", "[::ffff:169.254.169.254]:80", "[::ffff:a9fe:a9fe]:80", "[fd00:ec2::254]:80", "100.100.100.200:80", "[::ffff:100.100.100.200]:80",
		"168.63.129.16:80", "192.0.0.192:80", "[64:ff9b::169.254.169.254]:80", "[64:ff9b::a9fe:a9fe]:80", "[2002:a9fe:a9fe::]:80", "[2002:a9fe:a9fe::1]:80", "[2002:a9fe:a9fe:1:2:3:4:5]:80",
		// This host.
		"127.0.0.1:80", "127.0.0.53:53", "127.255.255.255:80", "127.1.2.3:9999", "[::1]:80", "[::ffff:127.0.0.1]:80", "[::ffff:7f00:1]:80", "[64:ff9b::127.0.0.1]:80", "[2002:7f00:1::]:80",
		"0.0.0.0:80", "0.1.2.3:80", "[::]:80", "[::ffff:0.0.0.0]:80", "[64:ff9b::]:80",
		// This link, groups, everybody.
		"[fe80::1]:80", "[fe80::1%eth0]:80", "[fe80::a9fe:a9fe%25eth0]:80", "[febf::1]:80", "224.0.0.1:80", "239.255.255.250:1900", "[ff02::1]:80", "[ff02::1%eth0]:80", "[ff05::2]:80", "255.255.255.255:80", "240.0.0.1:80",
		// The server's own database, and its own listener.
		"10.0.0.5:3306", "[::ffff:10.0.0.5]:3306", "[64:ff9b::10.0.0.5]:3306", "[2002:a00:5::]:3306",
		// The older forms in which an IPv6 address carries an IPv4 one.
		"[::127.0.0.1]:80", "[::169.254.169.254]:80",
	} {
		t.Run(to, func(t *testing.T) {
			addr, err := netip.ParseAddrPort(to)
			require.NoError(t, err)
			require.ErrorIs(t, p.Check(addr, all), egress.ErrBlocked)
		})
	}
	for _, to := range []string{"10.0.0.5:3307", "10.0.0.6:3306", "192.168.1.1:80", "8.8.8.8:53", "[2001:db8::1]:443", "100.100.100.201:80", "[64:ff9b::8.8.8.8]:80"} {
		require.NoError(t, p.Check(netip.MustParseAddrPort(to), all), to)
	}
}

func TestNothingIsOpenByItself(t *testing.T) {
	p := egress.NewPolicy(nil, false)
	for _, to := range []string{"10.1.2.3:9999", "8.8.8.8:443", "[2001:db8::1]:443", "127.0.0.1:9999"} {
		require.ErrorIs(t, p.Check(netip.MustParseAddrPort(to), nil), egress.ErrBlocked, to)
	}
	loopback := egress.NewPolicy([]netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:8081"), netip.MustParseAddrPort("0.0.0.0:9090")}, true)
	require.NoError(t, loopback.Check(netip.MustParseAddrPort("127.0.0.1:9999"), nil))
	require.NoError(t, loopback.Check(netip.MustParseAddrPort("[::1]:9999"), nil))
	require.ErrorIs(t, loopback.Check(netip.MustParseAddrPort("127.0.0.1:8081"), nil), egress.ErrBlocked, "itself")
	require.ErrorIs(t, loopback.Check(netip.MustParseAddrPort("[::ffff:127.0.0.1]:8081"), nil), egress.ErrBlocked, "itself")
	require.ErrorIs(t, loopback.Check(netip.MustParseAddrPort("127.0.0.9:9090"), nil), egress.ErrBlocked, "a listener on every address is on this one")
	require.ErrorIs(t, loopback.Check(netip.MustParseAddrPort("10.0.0.1:80"), nil), egress.ErrBlocked)
}

func TestRules(t *testing.T) {
	p := egress.NewPolicy(nil, false)
	tests := []struct {
		rule    string
		allowed []string
		barred  []string
	}{
		{"10.0.0.0/8:9000-9999", []string{"10.0.0.1:9000", "10.255.255.255:9999", "[::ffff:10.1.2.3]:9500"}, []string{"10.0.0.1:8999", "10.0.0.1:10000", "11.0.0.1:9500"}},
		{"10.1.2.3:9999", []string{"10.1.2.3:9999"}, []string{"10.1.2.4:9999", "10.1.2.3:9998"}},
		{"10.1.2.3/24:80", []string{"10.1.2.200:80"}, []string{"10.1.3.1:80"}},
		{"[fd00::]/8:*", []string{"[fd12::1]:1", "[fd12::1]:65535"}, []string{"[fc00::1]:80", "10.0.0.1:80"}},
		{"[2001:db8::1]:443", []string{"[2001:db8::1]:443"}, []string{"[2001:db8::2]:443"}},
	}
	for _, tt := range tests {
		r := rules(t, tt.rule)
		require.Equal(t, tt.rule, r[0].String())
		for _, to := range tt.allowed {
			require.NoError(t, p.Check(netip.MustParseAddrPort(to), r), "%s %s", tt.rule, to)
		}
		for _, to := range tt.barred {
			require.ErrorIs(t, p.Check(netip.MustParseAddrPort(to), r), egress.ErrBlocked, "%s %s", tt.rule, to)
		}
	}
	for _, bad := range []string{"", "*", "10.0.0.0/8", "10.0.0.0/33:80", "host:80", "10.0.0.1:0", "10.0.0.1:99-1", "10.0.0.1:65536", "10.0.0.1:80-", "10.0.0.1:-80", "10.0.0.1: 80", "0x7f.1:80", "127.5:80", "[::1]", "10.0.0.1:80,81"} {
		_, err := egress.ParseRules([]string{"10.0.0.1:80", bad})
		var inv *message.Invalid
		require.ErrorAs(t, err, &inv, bad)
		require.Equal(t, "allow[1]", inv.Field, bad)
		require.NotEmpty(t, inv.Message.ZH)
	}
	require.Len(t, rules(t, "10.0.0.1:80", "10.0.0.1:80"), 1)
}

// Whatever the rules are, and however an address is wrapped, the metadata service stays out of reach.
func TestNoRuleOpensTheMetadataService(t *testing.T) {
	p := egress.NewPolicy(nil, true)
	rapid.Check(t, func(t *rapid.T) {
		v4 := netip.AddrFrom4([4]byte{169, 254, rapid.Byte().Draw(t, "c"), rapid.Byte().Draw(t, "d")})
		b := v4.As4()
		tail := [16]byte{}
		switch rapid.IntRange(0, 3).Draw(t, "form") {
		case 0:
		case 1:
			v4 = netip.AddrFrom16(v4.As16())
		case 2:
			copy(tail[:], []byte{0, 0x64, 0xff, 0x9b})
			copy(tail[12:], b[:])
			v4 = netip.AddrFrom16(tail)
		case 3:
			copy(tail[:], []byte{0x20, 0x02})
			copy(tail[2:], b[:])
			copy(tail[6:], rapid.SliceOfN(rapid.Byte(), 10, 10).Draw(t, "rest"))
			v4 = netip.AddrFrom16(tail)
		}
		all, err := egress.ParseRules([]string{"0.0.0.0/0:*", "[::]/0:*"})
		require.NoError(t, err)
		require.ErrorIs(t, p.Check(netip.AddrPortFrom(v4, rapid.Uint16Range(1, 65535).Draw(t, "port")), all), egress.ErrBlocked)
	})
}

// C386, C395, T-SSRF-3: the client decides on the address that is dialled, follows nothing, and
// believes no proxy.
func TestClient(t *testing.T) {
	reached := 0
	sink := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reached++
		if r.Header.Get("Cookie") != "" || r.Header.Get("Authorization") != "" {
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	defer sink.Close()
	redirects := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "b"})
		http.Redirect(w, r, sink.URL, http.StatusTemporaryRedirect)
	}))
	defer redirects.Close()
	t.Setenv("HTTP_PROXY", sink.URL)
	none := func() []egress.Rule { return nil }
	ask := func(c *http.Client, url string) (int, error) {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, strings.NewReader("{}"))
		require.NoError(t, err)
		res, err := c.Do(req)
		if err != nil {
			return 0, err
		}
		_, _ = io.Copy(io.Discard, res.Body)
		return res.StatusCode, res.Body.Close()
	}

	closed := egress.NewPolicy(nil, false).Client(none, 2)
	_, err := ask(closed, sink.URL)
	require.ErrorIs(t, err, egress.ErrBlocked)
	require.Equal(t, "blocked by policy", egress.Coarse(err))
	require.True(t, egress.Refused(err))
	_, port, err := net.SplitHostPort(strings.TrimPrefix(sink.URL, "http://"))
	require.NoError(t, err)
	_, err = ask(closed, "http://localhost:"+port)
	require.ErrorIs(t, err, egress.ErrBlocked, "a name is looked at after it was resolved")
	_, err = ask(closed, "http://169.254.169.254/latest/meta-data")
	require.ErrorIs(t, err, egress.ErrBlocked)
	for _, url := range []string{"http://0x7f.1:" + port, "http://127.5:" + port, "http://2130706433:" + port, "http://0177.0.0.1:" + port, "file:///etc/passwd", "gopher://127.0.0.1:" + port} {
		_, err = ask(closed, url)
		require.Error(t, err, url)
	}
	require.Zero(t, reached)

	open := egress.NewPolicy(nil, true).Client(none, 2)
	status, err := ask(open, sink.URL)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, 1, reached)
	status, err = ask(open, redirects.URL)
	require.NoError(t, err)
	require.Equal(t, http.StatusTemporaryRedirect, status, "a redirect is an answer and not followed")
	require.Equal(t, 1, reached)

	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	_, err = ask(open, "http://"+l.Addr().String())
	require.True(t, egress.Refused(err))
	require.Equal(t, "refused", egress.Coarse(err))
	require.NotContains(t, egress.Coarse(err), "127.0.0.1")
	require.False(t, egress.Refused(errors.New("reset by peer")))
	require.Equal(t, "connection failed", egress.Coarse(errors.New("reset by peer")))
}
