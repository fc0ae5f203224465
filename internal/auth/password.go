package auth

import (
	"context"
	_ "embed"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/alexedwards/argon2id"
	"golang.org/x/text/unicode/norm"

	"github.com/ax-scheduler/ax/internal/message"
)

// Password lengths in characters. There is no second factor, hence 15.
const (
	minPassword = 15
	maxPassword = 128
	// ownPart is how many characters must be left of a password without the words that
	// everybody tries.
	ownPart = 6
)

// params of new hashes: 19 MiB and two passes are about 30 ms of one core.
var params = &argon2id.Params{Memory: 19456, Iterations: 2, Parallelism: 1, SaltLength: 16, KeyLength: 32} //nolint:gochecknoglobals // constant

// dummyHash is of a password that nobody knows. Checking against it costs what checking a
// known user's costs, so that the time does not tell who exists.
const dummyHash = "$argon2id$v=19$m=19456,t=2,p=1$gdMQM7zsuSJrwEdHSPHO9Q$f7Uc1r6Lf/M4x+bgHOVj2aYtajL1wtNUXCnMdiUGV6Q"

// gate bounds how many hashes run at once, since each takes its memory, and how long the
// others wait.
type gate struct {
	slots   chan struct{}
	queue   int64
	wait    time.Duration
	waiting atomic.Int64
	running atomic.Int64
	peak    atomic.Int64 // the most that ever ran at once
	total   atomic.Int64
}

func newGate(slots int, wait time.Duration) *gate {
	return &gate{slots: make(chan struct{}, slots), queue: int64(slots) * 128, wait: wait}
}

// hashing is the process's: the memory is.
var hashing = newGate(max(2, runtime.NumCPU()), 2*time.Second) //nolint:gochecknoglobals // the hashes of one process share its memory

// do runs f when it is its turn. ErrBusy: that took longer than the gate's wait.
func (g *gate) do(ctx context.Context, f func() error) error {
	defer g.waiting.Add(-1)
	if g.waiting.Add(1) > g.queue {
		return ErrBusy
	}
	timeout := time.NewTimer(g.wait)
	defer timeout.Stop()
	select {
	case g.slots <- struct{}{}:
	case <-timeout.C:
		return ErrBusy
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-g.slots }()
	defer g.running.Add(-1)
	n := g.running.Add(1)
	for p := g.peak.Load(); n > p && !g.peak.CompareAndSwap(p, n); p = g.peak.Load() {
	}
	g.total.Add(1)
	return f()
}

// HashPassword makes the hash of a password that CheckPassword accepted. ErrBusy: too many
// hashes are being made at once.
func HashPassword(password string) (string, error) {
	return hashPassword(context.Background(), password)
}

func hashPassword(ctx context.Context, password string) (hash string, err error) {
	err = hashing.do(ctx, func() error {
		hash, err = argon2id.CreateHash(norm.NFC.String(password), params)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("hash password: %w", err)
	}
	return hash, nil
}

// checkHash compares a password with a hash. weak tells that the hash was made with less than
// today's parameters.
func checkHash(ctx context.Context, password, hash string) (match, weak bool, err error) {
	err = hashing.do(ctx, func() error {
		var p *argon2id.Params
		match, p, err = argon2id.CheckHash(norm.NFC.String(password), hash)
		if err == nil {
			weak = p.Memory < params.Memory || p.Iterations < params.Iterations || p.KeyLength < params.KeyLength || p.SaltLength < params.SaltLength
		}
		return err
	})
	return match, weak, err
}

//go:embed common.txt
var commonText string

// common are the words that people make passwords of and lists begin with, longest first as
// the file has them.
var common = strings.Fields(commonText) //nolint:gochecknoglobals // constant

// rows are what fingers run along.
var rows = []string{"abcdefghijklmnopqrstuvwxyz", "01234567890", "qwertyuiop", "asdfghjkl", "zxcvbnm", "1qaz2wsx3edc4rfv5tgb6yhn7ujm"} //nolint:gochecknoglobals // constant

var unleet = strings.NewReplacer("0", "o", "1", "l", "3", "e", "4", "a", "5", "s", "7", "t", "@", "a", "$", "s", "!", "i") //nolint:gochecknoglobals // constant

// CheckPassword tells why password can not be the password of the user name; nil when it can.
// There is no rule about kinds of characters: a password must be long and not be one that
// everybody tries.
func CheckPassword(name, password string) *message.Invalid {
	refuse := func(code, en, zh string) *message.Invalid {
		return &message.Invalid{Code: code, Field: "password", Message: message.Text{EN: en, ZH: zh}}
	}
	if !utf8.ValidString(password) || strings.ContainsFunc(password, unicode.IsControl) {
		return refuse("password_not_text", "must be text without control characters", "只能是不含控制字符的文本")
	}
	password = norm.NFC.String(password)
	switch n := utf8.RuneCountInString(password); {
	case n < minPassword:
		return refuse("password_too_short", fmt.Sprintf("has %d characters, needs at least %d; a few words that do not belong together are easy to remember", n, minPassword),
			fmt.Sprintf("只有 %d 个字符,至少需要 %d 个;几个互不相关的词组成的短语既长又好记", n, minPassword))
	case n > maxPassword:
		return refuse("password_too_long", fmt.Sprintf("has %d characters, may have at most %d", n, maxPassword),
			fmt.Sprintf("有 %d 个字符,最多 %d 个", n, maxPassword))
	}
	if guessable(norm.NFC.String(name), password) {
		return refuse("password_common", "consists of common words, the user name, the product's name, repetitions or keyboard rows, which are tried first; choose another",
			"由常见词、用户名、产品名、重复字符或键盘顺序组成,最容易被猜到;请另选一个")
	}
	return nil
}

// minGiven is the least that a password from a file must have.
const minGiven = 8

// checkGivenPassword refuses what must not protect an administrator whoever chose it: a
// short password, or one that is nothing but what every attacker tries first.
func checkGivenPassword(password string) *message.Invalid {
	refuse := func(code, en, zh string) *message.Invalid {
		return &message.Invalid{Code: code, Field: "password", Message: message.Text{EN: en, ZH: zh}}
	}
	n := utf8.RuneCountInString(password)
	if !utf8.ValidString(password) || n < minGiven || n > maxPassword {
		return refuse("password_too_short", fmt.Sprintf("has %d characters; %d to %d are allowed, 15 or more are advised", n, minGiven, maxPassword), fmt.Sprintf("有 %d 个字符；允许 %d 至 %d 个，建议不少于 15 个", n, minGiven, maxPassword))
	}
	form := unleet.Replace(strings.ToLower(password))
	for _, w := range common {
		form = strings.ReplaceAll(form, w, "")
	}
	if strings.IndexFunc(form, unicode.IsLetter) < 0 {
		return refuse("password_common", "is a known default or consists of nothing but common words; choose another", "是众所周知的默认口令或仅由常见词组成；请另选一个")
	}
	return nil
}

// guessable tells whether too little of password is left once what everybody tries is taken out.
func guessable(name, password string) bool {
	low := strings.ToLower(password)
	words := common
	for _, part := range strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		if utf8.RuneCountInString(part) >= 3 {
			words = append([]string{part}, words...)
		}
	}
	for _, form := range []string{low, unleet.Replace(low)} {
		form = strings.Map(func(r rune) rune {
			if unicode.IsLetter(r) || unicode.IsDigit(r) {
				return r
			}
			return -1
		}, form)
		for _, w := range words {
			form = strings.ReplaceAll(form, w, " ")
		}
		if own(form) < ownPart {
			return true
		}
	}
	return false
}

// own counts the characters that are neither a repetition of what came before nor the
// continuation of a run along the alphabet or a keyboard.
func own(text string) int {
	runes := []rune(text)
	n, seen := 0, map[rune]bool{}
	for i, r := range runes {
		if r == ' ' || (i > 0 && follows(runes[i-1], r)) {
			continue
		}
		// A character that was there before counts only as part of a pair that was not.
		if seen[r] && (i == 0 || seenPair(runes[:i], runes[i-1], r)) {
			continue
		}
		seen[r] = true
		n++
	}
	return n
}

func seenPair(before []rune, a, b rune) bool {
	for i := 1; i < len(before); i++ {
		if before[i-1] == a && before[i] == b {
			return true
		}
	}
	return false
}

// follows tells whether b is a again or its neighbour in a row.
func follows(a, b rune) bool {
	if a == b {
		return true
	}
	for _, row := range rows {
		i, j := strings.IndexRune(row, a), strings.IndexRune(row, b)
		if i >= 0 && j >= 0 && (i-j == 1 || j-i == 1) {
			return true
		}
	}
	return false
}

var userNameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}$`)

// CheckUserName tells why name can not be a user's name; nil when it can.
func CheckUserName(name string) *message.Invalid {
	if userNameForm.MatchString(name) {
		return nil
	}
	token := []rune(strings.ToValidUTF8(name, "\uFFFD"))
	return &message.Invalid{Code: "user_name_form", Field: "name", Token: string(token[:min(len(token), 64)]), Message: message.Text{
		EN: "must have 1 to 64 of the characters A-Z a-z 0-9 . _ @ + - and begin with a letter or digit",
		ZH: "须为 1 到 64 个字符,可用 A-Z a-z 0-9 . _ @ + -,并以字母或数字开头",
	}}
}
