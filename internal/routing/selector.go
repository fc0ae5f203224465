package routing

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ax-scheduler/ax/internal/message"
)

// MaxSelector bounds a selector, in characters.
const MaxSelector = 512

// addressKey is the word in a selector that means an executor's address and no label of it.
const addressKey = "address"

// Selector says which executors may run something, by their labels and addresses. The zero value lets
// everybody pass. It is immutable and safe for concurrent use.
type Selector struct{ terms []term }

type term struct {
	key    string
	op     string // exists, absent, in, notin, above, below
	values []string
	nets   []netip.Prefix
	number float64
}

// ParseSelector reads conditions that are separated by commas and must all hold:
//
//	zone in (a, b), gpu, !spot, disk = ssd, tier != gold, cores > 8, address in (10.0.16.0/24, 10.1.0.7)
//
// As with Kubernetes, `!=` and `notin` hold for an executor that does not have the label.
func ParseSelector(text string) (*Selector, *message.Invalid) {
	p := &parser{text: text}
	if n := utf8.RuneCountInString(text); n > MaxSelector {
		return nil, p.refuse("too_long", "", fmt.Sprintf("At most %d characters; got %d.", MaxSelector, n), fmt.Sprintf("最多 %d 个字符，当前 %d 个。", MaxSelector, n))
	}
	p.next()
	s := &Selector{}
	if p.token == "" {
		return s, nil
	}
	for {
		t, bad := p.term()
		if bad != nil {
			return nil, bad
		}
		s.terms = append(s.terms, t)
		switch p.token {
		case "":
			return s, nil
		case ",":
			p.next()
		default:
			return nil, p.unexpected("a comma", "逗号")
		}
	}
}

type parser struct {
	text  string
	at    int    // where the next token is looked for
	start int    // where token begins
	token string // "" at the end
}

const signs = ",()!=<>"

// next reads a token: a sign or a word.
func (p *parser) next() {
	for p.at < len(p.text) && (p.text[p.at] == ' ' || p.text[p.at] == '\t') {
		p.at++
	}
	p.start = p.at
	if p.at == len(p.text) {
		p.token = ""
		return
	}
	if strings.IndexByte(signs, p.text[p.at]) >= 0 {
		n := 1
		if rest := p.text[p.at:]; strings.HasPrefix(rest, "!=") || strings.HasPrefix(rest, "==") {
			n = 2
		}
		p.at += n
	} else {
		for p.at < len(p.text) && strings.IndexByte(signs+" \t", p.text[p.at]) < 0 {
			p.at++
		}
	}
	p.token = p.text[p.start:p.at]
}

func (p *parser) word() bool { return p.token != "" && strings.IndexByte(signs, p.token[0]) < 0 }

func (p *parser) refuse(code, token, en, zh string) *message.Invalid {
	return &message.Invalid{Code: code, Field: "selector", Token: token, Message: message.Text{EN: en, ZH: zh}}
}

const (
	exampleEN = " Write one such as zone in (a, b), gpu, !spot, address in (10.0.16.0/24)."
	exampleZH = "示例：zone in (a, b), gpu, !spot, address in (10.0.16.0/24)。"
)

func (p *parser) unexpected(en, zh string) *message.Invalid {
	at := utf8.RuneCountInString(p.text[:p.start]) + 1
	if p.token == "" {
		return p.refuse("not_understood", "", "The selector ends where "+en+" is expected."+exampleEN, "选择器在需要"+zh+"处结束。"+exampleZH)
	}
	return p.refuse("not_understood", p.token, fmt.Sprintf("%q at character %d: %s is expected.", p.token, at, en)+exampleEN, fmt.Sprintf("第 %d 个字符处的“%s”：此处应为%s。", at, p.token, zh)+exampleZH)
}

func (p *parser) term() (term, *message.Invalid) {
	var t term
	if p.token == "!" {
		p.next()
		t.op = "absent"
	}
	if !p.word() {
		return t, p.unexpected("the name of a label", "标签名")
	}
	t.key = p.token
	p.next()
	if t.op == "absent" {
		return t, nil
	}
	switch p.token {
	case "", ",":
		t.op = "exists"
		return t, nil
	case "=", "==", "!=":
		t.op = "in"
		if p.token == "!=" {
			t.op = "notin"
		}
		p.next()
		if !p.word() {
			return t, p.unexpected("a value", "值")
		}
		t.values = []string{p.token}
	case "in", "notin":
		t.op = p.token
		if bad := p.list(&t); bad != nil {
			return t, bad
		}
	case "<", ">":
		t.op = "above"
		if p.token == "<" {
			t.op = "below"
		}
		p.next()
		n, err := strconv.ParseFloat(p.token, 64)
		if err != nil {
			return t, p.unexpected("a number", "数字")
		}
		t.number = n
	default:
		return t, p.unexpected("one of , = != in notin < >", " , = != in notin < > 之一")
	}
	if t.key == addressKey {
		if bad := p.addresses(&t); bad != nil {
			return t, bad
		}
	}
	p.next()
	return t, nil
}

// list reads "(a, b)" and stays at its end.
func (p *parser) list(t *term) *message.Invalid {
	p.next()
	if p.token != "(" {
		return p.unexpected("an opening parenthesis", "左括号")
	}
	for {
		p.next()
		if !p.word() {
			return p.unexpected("a value", "值")
		}
		t.values = append(t.values, p.token)
		p.next()
		switch p.token {
		case ")":
			return nil
		case ",":
		default:
			return p.unexpected("a comma or a closing parenthesis", "逗号或右括号")
		}
	}
}

// addresses reads the values of a condition on the address: ranges, addresses or host names.
func (p *parser) addresses(t *term) *message.Invalid {
	if t.op != "in" && t.op != "notin" {
		return p.refuse("not_understood", p.token, "An address is compared by =, !=, in or notin."+exampleEN, "地址只能用 =、!=、in、notin 比较。"+exampleZH)
	}
	var names []string
	for _, v := range t.values {
		if start, ok := strings.CutSuffix(v, ".*"); ok {
			// 10.0.16.* is what people write for 10.0.16.0/24.
			parts := strings.Count(start, ".") + 1
			v = start + strings.Repeat(".0", max(4-parts, 0)) + "/" + strconv.Itoa(8*parts)
		}
		if ip, err := netip.ParseAddr(v); err == nil {
			t.nets = append(t.nets, netip.PrefixFrom(ip.Unmap(), ip.Unmap().BitLen()))
			continue
		}
		if strings.Contains(v, "/") {
			net, err := netip.ParsePrefix(v)
			if err != nil {
				return p.refuse("bad_range", v, fmt.Sprintf("%q is no address range; write 10.0.16.0/24.", v), fmt.Sprintf("“%s” 不是地址段，请写 10.0.16.0/24。", v))
			}
			t.nets = append(t.nets, net.Masked())
			continue
		}
		names = append(names, v)
	}
	t.values = names
	return nil
}

// Matches tells whether an executor passes; if not, unmet is the first condition that does not hold.
func (s *Selector) Matches(c Candidate) (unmet string, ok bool) {
	for _, t := range s.terms {
		if !t.holds(c) {
			return t.String(), false
		}
	}
	return "", true
}

func (t term) holds(c Candidate) bool {
	if t.key == addressKey {
		return t.within(c.Address) == (t.op == "in")
	}
	v, has := c.Labels[t.key]
	switch t.op {
	case "exists":
		return has
	case "absent":
		return !has
	case "in":
		return has && slices.Contains(t.values, v)
	case "notin":
		return !has || !slices.Contains(t.values, v)
	}
	n, err := strconv.ParseFloat(v, 64)
	if !has || err != nil {
		return false
	}
	if t.op == "above" {
		return n > t.number
	}
	return n < t.number
}

func (t term) within(address string) bool {
	host := hostOf(address)
	if slices.Contains(t.values, host) {
		return true
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(t.nets, func(n netip.Prefix) bool { return n.Contains(ip.Unmap()) })
}

func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// String is the condition as somebody would write it.
func (t term) String() string {
	switch t.op {
	case "exists":
		return t.key
	case "absent":
		return "!" + t.key
	case "above":
		return fmt.Sprintf("%s > %v", t.key, t.number)
	case "below":
		return fmt.Sprintf("%s < %v", t.key, t.number)
	}
	values := slices.Clone(t.values)
	for _, n := range t.nets {
		values = append(values, n.String())
	}
	return t.key + " " + t.op + " (" + strings.Join(values, ", ") + ")"
}
