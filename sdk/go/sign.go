package ax

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
	headerTime      = "Ax-Time"
	headerApp       = "Ax-App"
	headerProof     = "Ax-Proof"

	minMessageID = 8
	maxMessageID = 64
	// maxSignatures bounds the work that one message can cause; a rotation needs two.
	maxSignatures = 8
	// tolerance is how far a message's timestamp may be from our clock, either way.
	tolerance = 300 * time.Second
	// replayFor is how long ids are remembered. A message dated tolerance ahead stays valid
	// for twice the tolerance, so it can not be shorter.
	replayFor = 2 * tolerance
)

var (
	errSignature = errors.New("no signature of the message matches the app's key")
	errClock     = errors.New("the timestamp of the message is more than 300 s away from the receiver's clock")
	errReplay    = errors.New("a message with this id was seen before")
)

// parseKey takes an app's key as it is shown at creation: axk_ and 64 hexadecimal digits.
func parseKey(s string) ([]byte, error) {
	digits, ok := strings.CutPrefix(s, "axk_")
	if !ok || len(digits) != 64 {
		return nil, errors.New("a key is axk_ followed by 64 hexadecimal digits, as shown when the app was created")
	}
	key, err := hex.DecodeString(digits)
	if err != nil {
		return nil, errors.New("a key is axk_ followed by 64 hexadecimal digits; this one has other characters")
	}
	return key, nil
}

// isMessageID bars dots above all: an id with dots could take over what the timestamp says.
func isMessageID(id string) bool {
	if len(id) < minMessageID || len(id) > maxMessageID {
		return false
	}
	for _, c := range []byte(id) {
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

func mac(key []byte, id, timestamp string, body []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(id))
	h.Write([]byte{'.'})
	h.Write([]byte(timestamp))
	h.Write([]byte{'.'})
	h.Write(body)
	return h.Sum(nil)
}

func sign(key []byte, id, timestamp string, body []byte) string {
	return "v1," + base64.StdEncoding.EncodeToString(mac(key, id, timestamp, body))
}

// verify checks id, timestamp and signatures of a message that arrived at now, by the
// receiver's corrected clock. It does not know about replays. It returns errSignature or
// errClock; errClock only for a message that the key's holder did sign, so that a stranger
// learns nothing.
func verify(key []byte, id, timestamp, signatures string, body []byte, now time.Time) error {
	if !isMessageID(id) {
		return errSignature
	}
	// One form per number, so that nothing rides along in the signed content.
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || seconds <= 0 || strconv.FormatInt(seconds, 10) != timestamp {
		return errSignature
	}
	want := mac(key, id, timestamp, body)
	matched := false
	for n, rest, more := 0, signatures, true; more && n < maxSignatures; n++ {
		var one string
		one, rest, more = strings.Cut(rest, " ")
		encoded, ok := strings.CutPrefix(one, "v1,")
		if !ok || len(encoded) != base64.StdEncoding.EncodedLen(sha256.Size) {
			continue
		}
		got, err := base64.StdEncoding.Strict().DecodeString(encoded)
		if err != nil {
			continue
		}
		if hmac.Equal(got, want) {
			matched = true
		}
	}
	if !matched {
		return errSignature
	}
	// Compared in whole seconds before any subtraction of times, which would overflow.
	if d := seconds - now.Unix(); d > int64(tolerance/time.Second) || d < -int64(tolerance/time.Second) {
		return errClock
	}
	return nil
}

func setSignature(h http.Header, key []byte, id string, now time.Time, body []byte) {
	timestamp := strconv.FormatInt(now.Unix(), 10)
	h.Set(headerID, id)
	h.Set(headerTimestamp, timestamp)
	h.Set(headerSignature, sign(key, id, timestamp, body))
}

// setProof proves to the server that we have the key before it reads the body, which is length bytes long. The
// request is signed already.
func setProof(h http.Header, key []byte, length int) {
	h.Set(headerProof, sign(key, h.Get(headerID), h.Get(headerTimestamp), []byte("ax-proof "+strconv.Itoa(length))))
}

func newID(prefix string, bytes int) string {
	b := make([]byte, bytes)
	rand.Read(b) // never fails since Go 1.24
	return prefix + hex.EncodeToString(b)
}

// clock is the host's clock with a correction that the server has vouched for.
type clock struct {
	offset atomic.Int64 // nanoseconds
}

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.offset.Load())) }

// replays remembers the ids of messages for at least replayFor, in two generations: when the
// younger has been filled for replayFor (or is full), it becomes the older one. Only rightly
// signed messages get here, so a stranger can not fill it.
type replays struct {
	mu        sync.Mutex
	max       int // ids a generation
	young     map[string]struct{}
	old       map[string]struct{}
	rotatedAt time.Time
}

// take reports whether id is new, and remembers it. Time is the monotonic clock's.
func (r *replays) take(id string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.young == nil || now.Sub(r.rotatedAt) >= replayFor || len(r.young) >= r.max {
		if now.Sub(r.rotatedAt) >= 2*replayFor {
			r.young = nil
		}
		r.old, r.young, r.rotatedAt = r.young, make(map[string]struct{}), now
	}
	if _, ok := r.young[id]; ok {
		return false
	}
	if _, ok := r.old[id]; ok {
		return false
	}
	r.young[id] = struct{}{}
	return true
}
