// Package egress is the only maker of outbound HTTP clients. It decides on the address
// that is dialled, after names were resolved, for every attempt: a name that changes its mind
// between check and use gains nothing.
package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ax-scheduler/ax/internal/message"
)

// ErrBlocked says that the policy bars an address.
var ErrBlocked = errors.New("blocked by policy")

// Limits of every client.
const (
	connectTimeout = 2 * time.Second
	maxHeader      = 16 << 10
	// MaxBody bounds what is read of an answer.
	MaxBody = 64 << 10
)

// Rule allows a range of addresses and ports.
type Rule struct {
	Prefix   netip.Prefix
	Low      uint16
	High     uint16
	original string
}

// String is the rule as it was written.
func (r Rule) String() string { return r.original }

// ParseRule reads "10.0.0.0/8:9000-9999", "10.1.2.3:9999", "[fd00::]/8:*". The ports must
// be there; "*" is all.
func ParseRule(text string) (Rule, error) {
	bad := func(en, zh string) (Rule, error) {
		return Rule{}, &message.Invalid{Code: "bad_egress_rule", Field: "allow", Token: text, Suggestion: "10.0.0.0/8:9000-9999", Message: message.Text{EN: en, ZH: zh}}
	}
	at := strings.LastIndex(text, ":")
	if at < 0 || strings.HasSuffix(text, "]") {
		return bad("Write an address range and ports, such as 10.0.0.0/8:9000-9999; * is every port.", "请写地址范围与端口，例如 10.0.0.0/8:9000-9999；* 表示所有端口。")
	}
	addr := strings.NewReplacer("[", "", "]", "").Replace(text[:at])
	prefix, err := netip.ParsePrefix(addr)
	if err != nil {
		ip, err := netip.ParseAddr(addr)
		if err != nil {
			return bad(fmt.Sprintf("%q is not an address or a range such as 10.0.0.0/8.", addr), fmt.Sprintf("“%s” 不是地址或地址范围（例如 10.0.0.0/8）。", addr))
		}
		prefix = netip.PrefixFrom(ip, ip.BitLen())
	}
	low, high := uint16(1), uint16(65535)
	if ports := text[at+1:]; ports != "*" {
		from, to, ranged := strings.Cut(ports, "-")
		if !ranged {
			to = from
		}
		l, err1 := strconv.ParseUint(from, 10, 16)
		h, err2 := strconv.ParseUint(to, 10, 16)
		if err1 != nil || err2 != nil || l == 0 || l > h {
			return bad(fmt.Sprintf("%q is not a port or a range of ports from 1 to 65535.", ports), fmt.Sprintf("“%s” 不是 1 至 65535 之间的端口或端口范围。", ports))
		}
		low, high = uint16(l), uint16(h)
	}
	return Rule{Prefix: prefix.Masked(), Low: low, High: high, original: text}, nil
}

// Policy is what the whole server may reach. It is immutable and safe for concurrent use.
type Policy struct {
	barred   []netip.Prefix
	points   []netip.AddrPort // exact addresses: the server's own, the database's
	loopback bool
}

// NewPolicy makes the policy. own are exact addresses that nobody may make the server
// call: its own listeners and its database. loopback allows 127.0.0.0/8 and ::1, for a server that
// itself listens there only.
func NewPolicy(own []netip.AddrPort, loopback bool) *Policy {
	p := &Policy{points: own, loopback: loopback}
	for _, s := range []string{
		"0.0.0.0/8", "169.254.0.0/16", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32", "224.0.0.0/4", "240.0.0.0/4",
		"::/128", "fe80::/10", "fd00:ec2::254/128", "ff00::/8",
	} {
		p.barred = append(p.barred, netip.MustParsePrefix(s))
	}
	return p
}

// Loopback tells whether loopback addresses may be reached.
func (p *Policy) Loopback() bool { return p.loopback }

// Check answers whether an address may be dialled by a namespace with these rules:
// what is barred for everybody first, then the rules, else no.
func (p *Policy) Check(to netip.AddrPort, rules []Rule) error {
	addr := embedded(to.Addr().Unmap().WithZone(""))
	for _, b := range p.barred {
		if b.Contains(addr) {
			return ErrBlocked
		}
	}
	for _, own := range p.points {
		if own.Port() == to.Port() && (own.Addr() == addr || own.Addr().IsUnspecified() && addr.IsLoopback()) {
			return ErrBlocked
		}
	}
	if addr.IsLoopback() {
		if !p.loopback {
			return ErrBlocked
		}
		return nil
	}
	for _, r := range rules {
		if r.Prefix.Contains(addr) && to.Port() >= r.Low && to.Port() <= r.High {
			return nil
		}
	}
	return ErrBlocked
}

// embedded looks inside the forms of IPv6 that carry an IPv4 address: NAT64, 6to4, and the
// old one of ::/96, in which :: and ::1 are themselves.
func embedded(a netip.Addr) netip.Addr {
	if !a.Is6() {
		return a
	}
	b := a.As16()
	switch {
	case a.IsUnspecified(), a.IsLoopback():
	case netip.MustParsePrefix("64:ff9b::/96").Contains(a), netip.MustParsePrefix("::/96").Contains(a):
		return netip.AddrFrom4([4]byte(b[12:16]))
	case netip.MustParsePrefix("2002::/16").Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6]))
	}
	return a
}

// Client makes an HTTP client whose every connection is checked against the policy and the rules
// that allow returns at that moment. It follows no redirects, uses no proxy, keeps no cookies. perHost
// bounds the idle connections per host, which should be at least the concurrency used towards one.
func (p *Policy) Client(allow func() []Rule, perHost int) *http.Client {
	dialer := &net.Dialer{
		Timeout: connectTimeout, KeepAlive: 30 * time.Second,
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return ErrBlocked
			}
			return p.Check(to, allow())
		},
	}
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: dialer.DialContext, Proxy: nil, MaxIdleConns: 4096, MaxIdleConnsPerHost: perHost, MaxConnsPerHost: 0,
			IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 3 * time.Second, MaxResponseHeaderBytes: maxHeader,
			DisableCompression: true, ForceAttemptHTTP2: false,
		},
	}
}

// Refused tells whether a request certainly did not reach the other side, so that it
// may go elsewhere: the connection could not be made.
func Refused(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return true
	}
	var dns *net.DNSError
	return errors.As(err, &dns) || errors.Is(err, ErrBlocked)
}

// Coarse is what a tenant may know of a failure: no more, or the server would be a
// port scanner.
func Coarse(err error) string {
	var netErr net.Error
	var dns *net.DNSError
	switch {
	case errors.Is(err, ErrBlocked):
		return "blocked by policy"
	case errors.As(err, &dns):
		return "unknown host"
	case errors.As(err, &netErr) && netErr.Timeout(), errors.Is(err, context.DeadlineExceeded):
		if Refused(err) {
			return "connect timeout"
		}
		return "timeout"
	case Refused(err):
		return "refused"
	}
	return "connection failed"
}

// ParseRules reads a list; the error names the first bad entry.
func ParseRules(list []string) ([]Rule, error) {
	out := make([]Rule, 0, len(list))
	for i, text := range list {
		r, err := ParseRule(text)
		if err != nil {
			if inv, ok := errors.AsType[*message.Invalid](err); ok {
				moved := *inv
				moved.Field = fmt.Sprintf("allow[%d]", i)
				return nil, &moved
			}
			return nil, err
		}
		if slices.ContainsFunc(out, func(o Rule) bool { return o.original == r.original }) {
			continue
		}
		out = append(out, r)
	}
	return out, nil
}
