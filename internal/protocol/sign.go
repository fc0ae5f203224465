package protocol

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// Headers of the protocol beside those of Standard Webhooks.
const (
	HeaderApp  = "ax-app"  // <namespace>/<app>, on requests to the server
	HeaderTime = "ax-time" // ax time in milliseconds, on the server's messages
	// HeaderProof, on requests to the server, proves that the sender has the key before the body is read.
	HeaderProof = "ax-proof"
)

// Tolerance is how far the sender's host clock may be off.
const Tolerance = 300 * time.Second

// remember is how long a message id is not taken again.
const remember = 10 * time.Minute

// KeyPrefix starts every app key.
const KeyPrefix = "axk_"

// Errors of a message that is not taken.
var (
	ErrSignature = errors.New("the signature does not match: check the app's key")
	ErrClock     = errors.New("the sender's clock is more than 300 s off")
	ErrReplayed  = errors.New("a message with this id was received already")
)

// Key is an app's key, 32 bytes.
type Key []byte

// NewKey makes a key and its text, which is shown once.
func NewKey() (Key, string) {
	k := make(Key, 32)
	_, _ = rand.Read(k)
	return k, KeyPrefix + hex.EncodeToString(k)
}

// ParseKey reads the text of a key.
func ParseKey(text string) (Key, error) {
	raw, ok := strings.CutPrefix(strings.TrimSpace(text), KeyPrefix)
	k, err := hex.DecodeString(raw)
	if !ok || err != nil || len(k) != 32 {
		return nil, errors.New("an app key is axk_ and 64 hexadecimal digits")
	}
	return k, nil
}

// Text is the key as it is shown once.
func (k Key) Text() string { return KeyPrefix + hex.EncodeToString(k) }

// NewMessageID makes a message id.
func NewMessageID() string {
	var b [12]byte
	_, _ = rand.Read(b[:])
	return "msg_" + hex.EncodeToString(b[:])
}

// Sign sets the three headers on h, with a signature for each key.
func Sign(h http.Header, id string, at time.Time, body []byte, keys ...Key) error {
	var signatures []string
	for _, k := range keys {
		w, err := webhooks.NewWebhookRaw(k)
		if err != nil {
			return fmt.Errorf("sign: %w", err)
		}
		s, err := w.Sign(id, at, body)
		if err != nil {
			return fmt.Errorf("sign: %w", err)
		}
		signatures = append(signatures, s)
	}
	h.Set(webhooks.HeaderWebhookID, id)
	h.Set(webhooks.HeaderWebhookTimestamp, strconv.FormatInt(at.Unix(), 10))
	h.Set(webhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
	return nil
}

// proof is what HeaderProof signs in place of the body: no message looks like it.
func proof(length int64) []byte { return []byte("ax-proof " + strconv.FormatInt(length, 10)) }

// Prove sets HeaderProof of a signed request whose body is length bytes long.
func Prove(h http.Header, length int64, key Key) error {
	stamp, err := strconv.ParseInt(h.Get(webhooks.HeaderWebhookTimestamp), 10, 64)
	if err != nil {
		return fmt.Errorf("prove: %w", err)
	}
	w, err := webhooks.NewWebhookRaw(key)
	if err != nil {
		return fmt.Errorf("prove: %w", err)
	}
	s, err := w.Sign(h.Get(webhooks.HeaderWebhookID), time.Unix(stamp, 0), proof(length))
	if err != nil {
		return fmt.Errorf("prove: %w", err)
	}
	h.Set(HeaderProof, s)
	return nil
}

// VerifyProof checks HeaderProof against the keys of the app and the length that the request announces. It looks
// at no clock and no body.
func VerifyProof(h http.Header, length int64, keys ...Key) error {
	alone := http.Header{}
	alone.Set(webhooks.HeaderWebhookID, h.Get(webhooks.HeaderWebhookID))
	alone.Set(webhooks.HeaderWebhookTimestamp, h.Get(webhooks.HeaderWebhookTimestamp))
	alone.Set(webhooks.HeaderWebhookSignature, h.Get(HeaderProof))
	if err := Verify(alone, proof(length), time.Now(), keys...); err != nil && !errors.Is(err, ErrClock) {
		return err
	}
	return nil
}

var idPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{8,64}$`)

// Plausible refuses a request whose headers alone rule it out, before its body is read.
func Plausible(h http.Header) error {
	if _, _, ok := strings.Cut(h.Get(HeaderApp), "/"); !ok || !idPattern.MatchString(h.Get(webhooks.HeaderWebhookID)) || h.Get(webhooks.HeaderWebhookTimestamp) == "" || !strings.HasPrefix(h.Get(HeaderProof), "v1,") || !strings.Contains(h.Get(webhooks.HeaderWebhookSignature), "v1,") {
		return ErrSignature
	}
	return nil
}

// Verify checks a message against the keys of its app at the host's time now. The
// order of the checks tells a wrong key from a wrong clock: only the holder of the key learns
// about clocks.
func Verify(h http.Header, body []byte, now time.Time, keys ...Key) error {
	id := h.Get(webhooks.HeaderWebhookID)
	stamp, err := strconv.ParseInt(h.Get(webhooks.HeaderWebhookTimestamp), 10, 64)
	// A plain decimal number: what is signed is the number, so "+1" and "01" would pass as 1.
	if err != nil || strconv.FormatInt(stamp, 10) != h.Get(webhooks.HeaderWebhookTimestamp) || !idPattern.MatchString(id) || len(h.Get(webhooks.HeaderWebhookSignature)) > 2048 {
		return ErrSignature
	}
	good := false
	for _, k := range keys {
		w, err := webhooks.NewWebhookRaw(k)
		if err != nil {
			return fmt.Errorf("verify: %w", err)
		}
		// Every key is tried, so that the time does not tell which one matched.
		good = w.VerifyIgnoringTimestamp(body, h) == nil || good
	}
	if !good {
		return ErrSignature
	}
	if off := now.Sub(time.Unix(stamp, 0)); off.Abs() > Tolerance {
		return ErrClock
	}
	return nil
}

// VerifyReply checks a reply to the request with the given id.
func VerifyReply(h http.Header, requestID string, body []byte, now time.Time, keys ...Key) error {
	if h.Get(webhooks.HeaderWebhookID) != requestID {
		return ErrSignature
	}
	return Verify(h, body, now, keys...)
}

// MessageID is the id that a message carries.
func MessageID(h http.Header) string { return h.Get(webhooks.HeaderWebhookID) }

// Seen remembers message ids for 10 minutes, at most a bounded number of them. It is
// safe for concurrent use.
type Seen struct {
	mu      sync.Mutex
	current map[string]struct{}
	old     map[string]struct{}
	turned  time.Time
	limit   int
}

// NewSeen remembers at most about 2·limit ids.
func NewSeen(limit int) *Seen {
	return &Seen{current: map[string]struct{}{}, old: map[string]struct{}{}, limit: limit}
}

// First tells whether id is new, and remembers it. When limit ids came within the time,
// the older half is forgotten early: results and leases rely on fences and not on this.
func (s *Seen) First(id string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.turned) >= remember || len(s.current) >= s.limit {
		s.old, s.current, s.turned = s.current, map[string]struct{}{}, now
	}
	if _, ok := s.current[id]; ok {
		return false
	}
	if _, ok := s.old[id]; ok {
		return false
	}
	s.current[id] = struct{}{}
	return true
}
