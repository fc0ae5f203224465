// Package seal encrypts what the database must keep but not know: application keys,
// signing keys, secrets.
//
// Each record has its own data key, which the master key wraps; the master key is a
// file beside the server and never in the database. What a record is about (its
// associated data) is bound in, so that a sealed value that was copied to another row
// does not open there. Callers choose the associated data and keep the text.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// KeySize is the length of a master key file in bytes.
const KeySize = 32

const (
	version      = "ax1"
	canaryAAD    = "seal.canary"
	canaryText   = "this database belongs to this master key"
	dataKeySize  = 32
	maxSealedLen = 8 << 20
)

// Errors that Open returns, wrapped.
var (
	// ErrOtherKey: the value was sealed under another master key.
	ErrOtherKey = errors.New("sealed under another master key")
	// ErrDamaged: the value was changed, or belongs to another record.
	ErrDamaged = errors.New("sealed value was changed or belongs to another record")
)

// Sealer seals and opens under one master key. It is safe for concurrent use.
type Sealer struct {
	id   string // names the master key without telling anything of it
	wrap cipher.AEAD
	// root is what further keys are derived from.
	root []byte
}

// New makes a Sealer of a master key. It refuses a key of another length than KeySize
// and one whose bytes repeat, which no generator makes.
func New(key []byte) (*Sealer, error) {
	if len(key) != KeySize {
		return nil, fmt.Errorf("master key has %d bytes, must have exactly %d", len(key), KeySize)
	}
	if repeats(key) {
		return nil, errors.New("master key repeats the same few bytes and was not made by a random generator")
	}
	// The id and the wrapping key are derived apart, so that the id tells nothing of the key.
	id, err := hkdf.Key(sha256.New, key, nil, "ax master key id", 4)
	if err != nil {
		return nil, fmt.Errorf("derive key id: %w", err)
	}
	wrapping, err := hkdf.Key(sha256.New, key, nil, "ax master key wrap", KeySize)
	if err != nil {
		return nil, fmt.Errorf("derive wrapping key: %w", err)
	}
	wrap, err := aead(wrapping)
	if err != nil {
		return nil, err
	}
	root, err := hkdf.Key(sha256.New, key, nil, "ax master key root", KeySize)
	if err != nil {
		return nil, fmt.Errorf("derive root key: %w", err)
	}
	return &Sealer{id: hex.EncodeToString(id), wrap: wrap, root: root}, nil
}

// Derive makes a key for one purpose that everybody with the same master key makes the same.
func (s *Sealer) Derive(purpose string) ([]byte, error) {
	key, err := hkdf.Key(sha256.New, s.root, nil, purpose, KeySize)
	if err != nil {
		return nil, fmt.Errorf("derive key for %s: %w", purpose, err)
	}
	return key, nil
}

// repeats tells whether key is one pattern of at most 8 bytes again and again, or has so
// few different bytes that it was typed.
func repeats(key []byte) bool {
	seen := map[byte]bool{}
	for _, b := range key {
		seen[b] = true
	}
	// 32 random bytes have fewer than 12 different ones once in more than 10^20 keys.
	if len(seen) < 12 {
		return true
	}
	for period := 1; period <= len(key)/2; period++ {
		same := true
		for i := period; i < len(key) && same; i++ {
			same = key[i] == key[i-period]
		}
		if same {
			return true
		}
	}
	return false
}

// LoadOrCreate reads the master key from path, or makes the file with a new random key,
// readable by its owner only; created tells which. Two processes that create it at once
// end up with the same key. A file that everybody may read, of another length or with
// repeating bytes is refused with an error that says how to mend it.
func LoadOrCreate(path string) (s *Sealer, created bool, err error) {
	s, err = load(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return s, false, err
	}
	created, err = create(path)
	if err != nil {
		return nil, false, fmt.Errorf("create master key %s: %w; the directory must exist and be writable by this user", path, err)
	}
	s, err = load(path)
	return s, created, err
}

func load(path string) (*Sealer, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("master key %s: %w", path, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("master key %s is not a regular file; name the key file itself", path)
	}
	if info.Mode().Perm()&0o007 != 0 {
		return nil, fmt.Errorf("master key %s may be used by every user of this host (mode %04o); run: chmod 600 %s", path, info.Mode().Perm(), path)
	}
	if info.Size() != KeySize {
		return nil, fmt.Errorf("master key %s has %d bytes, must have exactly %d raw bytes; restore the file from a backup, or, for a new installation, remove it and ax makes one", path, info.Size(), KeySize)
	}
	key, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read master key: %w", err)
	}
	s, err := New(key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; restore the file from a backup, or, for a new installation, remove it and ax makes one", path, err)
	}
	return s, nil
}

// create writes a new key beside path and links it there, so that nobody reads half a key
// and of two processes one wins. created is false when the other did.
func create(path string) (created bool, err error) {
	dir := filepath.Dir(path)
	file, err := os.CreateTemp(dir, ".master-*") // mode 0600
	if err != nil {
		return false, err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	key := make([]byte, KeySize)
	_, _ = rand.Read(key)
	_, err = file.Write(key)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return false, err
	}
	if err := os.Link(file.Name(), path); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return false, nil
		}
		return false, err
	}
	// The name must survive a power cut before anything is sealed under the key.
	d, err := os.Open(dir)
	if err != nil {
		return false, err
	}
	return true, errors.Join(d.Sync(), d.Close())
}

// KeyID names the master key; it is no secret.
func (s *Sealer) KeyID() string { return s.id }

// Seal encrypts plain under a new data key. aad says what the value is and where it
// belongs, such as "app_key|7|12"; Open needs the same. The result is plain ASCII.
func (s *Sealer) Seal(aad string, plain []byte) (string, error) {
	dataKey := make([]byte, dataKeySize)
	_, _ = rand.Read(dataKey)
	body, err := aead(dataKey)
	if err != nil {
		return "", err
	}
	// Only the wrapping names the master key: a new master key wraps the data key again and
	// leaves the body alone.
	wrapped := encrypt(s.wrap, version+"|wrap|"+s.id+"|"+aad, dataKey)
	text := encrypt(body, version+"|body|"+aad, plain)
	return strings.Join([]string{version, s.id, encode(wrapped), encode(text)}, "."), nil
}

// Open decrypts what Seal made with the same aad. ErrOtherKey: another master key sealed
// it. ErrDamaged: any bit was changed, or aad is another one.
func (s *Sealer) Open(aad, sealed string) ([]byte, error) {
	parts := strings.Split(sealed, ".")
	if len(sealed) > maxSealedLen || len(parts) != 4 || parts[0] != version {
		return nil, fmt.Errorf("open sealed value: %w", ErrDamaged)
	}
	if parts[1] != s.id {
		return nil, fmt.Errorf("open sealed value: %w", ErrOtherKey)
	}
	wrapped, err := decode(parts[2])
	if err != nil {
		return nil, fmt.Errorf("open sealed value: %w", ErrDamaged)
	}
	text, err := decode(parts[3])
	if err != nil {
		return nil, fmt.Errorf("open sealed value: %w", ErrDamaged)
	}
	dataKey, err := decrypt(s.wrap, version+"|wrap|"+s.id+"|"+aad, wrapped)
	if err != nil {
		return nil, fmt.Errorf("open data key: %w", ErrDamaged)
	}
	body, err := aead(dataKey)
	if err != nil {
		return nil, err
	}
	plain, err := decrypt(body, version+"|body|"+aad, text)
	if err != nil {
		return nil, fmt.Errorf("open sealed value: %w", ErrDamaged)
	}
	return plain, nil
}

// Canary seals a known text. A database keeps it, and every server that starts on the
// database checks it with CheckCanary.
func (s *Sealer) Canary() (string, error) { return s.Seal(canaryAAD, []byte(canaryText)) }

// CheckCanary refuses a canary that another master key made. The error says what to do.
func (s *Sealer) CheckCanary(text string) error {
	plain, err := s.Open(canaryAAD, text)
	if err == nil && string(plain) == canaryText {
		return nil
	}
	if err == nil {
		err = ErrDamaged
	}
	return fmt.Errorf("this database was made with another master.key than the one of this server (key id %s): copy master.key from the server that made the database, "+
		"or restore it from the backup of that server; without it the application keys and signing keys in the database can not be read: %w", s.id, err)
}

func aead(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("cipher: %w", err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("cipher: %w", err)
	}
	return gcm, nil
}

func encrypt(c cipher.AEAD, aad string, plain []byte) []byte {
	nonce := make([]byte, c.NonceSize(), c.NonceSize()+len(plain)+c.Overhead())
	_, _ = rand.Read(nonce)
	return c.Seal(nonce, nonce, plain, []byte(aad))
}

func decrypt(c cipher.AEAD, aad string, text []byte) ([]byte, error) {
	if len(text) < c.NonceSize() {
		return nil, ErrDamaged
	}
	return c.Open(nil, text[:c.NonceSize()], text[c.NonceSize():], []byte(aad))
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// decode is strict: of the texts that mean the same bytes only one is taken.
func decode(text string) ([]byte, error) { return base64.RawURLEncoding.Strict().DecodeString(text) }
