package audit

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// What the keys are derived for.
const (
	keyPurpose  = "ax audit entry"
	signPurpose = "ax audit digest"
)

// DigestFile is the file in a server's data folder that keeps the digests which that server signed, one a line as JSON.
const DigestFile = "audit-digests.jsonl"

// Keys are what the trail is protected with.
type Keys struct {
	Entry []byte             // authenticates entries
	Sign  ed25519.PrivateKey // signs digests
}

// KeysOf makes the keys of an installation.
func KeysOf(derive func(purpose string) ([]byte, error)) (k Keys, err error) {
	if k.Entry, err = derive(keyPurpose); err != nil {
		return k, err
	}
	seed, err := derive(signPurpose)
	if err != nil {
		return k, err
	}
	k.Sign = ed25519.NewKeyFromSeed(seed)
	return k, nil
}

// Entry is an entry of the trail as it is authenticated: every field that is stored, in this order.
type Entry struct {
	ID         int64   `json:"id"`
	At         int64   `json:"at"`
	NS         int64   `json:"namespace"`
	ActorType  string  `json:"actorType"`
	ActorID    string  `json:"actorId"`
	ActorName  string  `json:"actorName"`
	IP         string  `json:"ip"`
	RequestID  string  `json:"requestId"`
	Action     string  `json:"action"`
	ObjectType string  `json:"objectType"`
	ObjectID   string  `json:"objectId"`
	ObjectName string  `json:"objectName"`
	Outcome    string  `json:"outcome"`
	Before     *string `json:"before"`
	After      *string `json:"after"`
	Diff       *string `json:"diff"`
}

// canonical is the one text of an entry.
func (e Entry) canonical() []byte {
	raw, err := json.Marshal(e)
	if err != nil {
		panic(err) // plain texts and numbers always have a text
	}
	return raw
}

// MAC is what only somebody who has the key can write beside an entry.
func (e Entry) MAC(key []byte) string {
	m := hmac.New(sha256.New, key)
	_, _ = m.Write(e.canonical())
	return hex.EncodeToString(m.Sum(nil))
}

// Link is the chain's value behind an entry whose predecessor's is prev; before the first it is "".
func (e Entry) Link(prev, mac string) string {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%s\n%s\n", prev, mac)
	_, _ = h.Write(e.canonical())
	return hex.EncodeToString(h.Sum(nil))
}

// Digest says what the trail was up to an entry. Digests follow each other without a gap, and each names the one before.
type Digest struct {
	No        int64  `json:"no"` // from 1
	First     int64  `json:"first"`
	Last      int64  `json:"last"`
	Root      string `json:"root"` // the chain's value behind the last
	Prev      string `json:"prev"` // Hash of the digest before; "" before the first
	At        int64  `json:"at"`
	Signature string `json:"signature"`
}

// Hash names a digest.
func (d Digest) Hash() string {
	sum := sha256.Sum256(append(d.text(), d.Signature...))
	return hex.EncodeToString(sum[:])
}

func (d Digest) text() []byte {
	d.Signature = ""
	raw, err := json.Marshal(d)
	if err != nil {
		panic(err)
	}
	return raw
}

// Sign signs it.
func (d *Digest) Sign(key ed25519.PrivateKey) {
	d.Signature = base64.StdEncoding.EncodeToString(ed25519.Sign(key, d.text()))
}

// Signed tells whether the holder of the key signed it.
func (d Digest) Signed(key ed25519.PublicKey) bool {
	signature, err := base64.StdEncoding.DecodeString(d.Signature)
	return err == nil && ed25519.Verify(key, d.text(), signature)
}

// Finding is a place where the trail is not what was written.
type Finding struct {
	Seq    int64  `json:"seq,omitempty"` // 0 = of a digest, or of an entry outside the chain
	ID     int64  `json:"id,omitempty,string"`
	Kind   string `json:"kind"`
	Detail string `json:"detail"`
}

// Kinds of findings.
const (
	Altered  = "altered"  // an entry is not what was written
	Removed  = "removed"  // an entry is gone
	Inserted = "inserted" // an entry was not written by ax
	Broken   = "broken"   // the chain is not what it was
	Forged   = "forged"   // a digest is not what was signed
)

// maxFindings is how many findings are kept: the first one matters.
const maxFindings = 100

// Checker reads a trail: all digests in their order, then all sealed entries in theirs, then what is not sealed yet.
type Checker struct {
	// Key is what entries are authenticated with; nil = only the chain is checked.
	Key []byte
	// Public is whose signature digests must have; nil = signatures are not checked.
	Public ed25519.PublicKey

	Entries  int64     // that were sealed
	Unsealed int64     // that are authentic and not in the chain yet
	Digests  int64     //
	Found    []Finding // in the order of the trail
	prev     string    // chain
	seq      int64
	last     Digest
	ends     map[int64]Digest // by their last entry
}

func (c *Checker) found(f Finding) {
	if len(c.Found) < maxFindings {
		c.Found = append(c.Found, f)
	}
}

// Digest checks the next digest.
func (c *Checker) Digest(d Digest) {
	if c.ends == nil {
		c.ends = map[int64]Digest{}
	}
	switch {
	case c.Public != nil && !d.Signed(c.Public):
		c.found(Finding{Kind: Forged, Detail: fmt.Sprintf("digest %d is not signed by this installation's key", d.No)})
		c.Digests++
		c.last = d // it says nothing of the entries
		return
	case d.No != c.last.No+1 || d.First != c.last.Last+1 || d.Last < d.First || c.last.No > 0 && d.Prev != c.last.Hash():
		c.found(Finding{Kind: Forged, Detail: fmt.Sprintf("digest %d does not follow digest %d", d.No, c.last.No)})
	}
	c.Digests++
	c.last = d
	c.ends[d.Last] = d
}

// Kept checks a digest that was kept outside the trail: the trail must have it.
func (c *Checker) Kept(d Digest) {
	if has, ok := c.ends[d.Last]; !ok || has.Hash() != d.Hash() {
		c.found(Finding{Kind: Removed, Detail: fmt.Sprintf("digest %d of entries %d to %d, which was kept outside the database, is not in it", d.No, d.First, d.Last)})
	}
}

// Sealed checks the next entry of the chain. entry is nil when there is none for this place any more.
func (c *Checker) Sealed(seq, id int64, entry *Entry, mac, chain string) {
	c.Entries++
	if seq != c.seq+1 {
		c.found(Finding{Seq: c.seq + 1, Kind: Removed, Detail: fmt.Sprintf("places %d to %d of the chain are gone", c.seq+1, seq-1)})
	}
	switch {
	case entry == nil:
		c.found(Finding{Seq: seq, ID: id, Kind: Removed, Detail: "the entry is gone"})
	case c.Key != nil && !hmac.Equal([]byte(entry.MAC(c.Key)), []byte(mac)):
		c.found(Finding{Seq: seq, ID: id, Kind: Altered, Detail: "the entry is not what was written"})
	case entry.ID != id || entry.Link(c.prev, mac) != chain:
		c.found(Finding{Seq: seq, ID: id, Kind: Broken, Detail: "the entry is not the one that was sealed here, or the one before is not"})
	}
	if d, ok := c.ends[seq]; ok && d.Root != chain {
		c.found(Finding{Seq: seq, ID: id, Kind: Broken, Detail: fmt.Sprintf("the chain is not what digest %d signed", d.No)})
	}
	c.seq, c.prev = seq, chain
}

// Loose checks an entry that is not in the chain yet.
func (c *Checker) Loose(entry Entry, mac string) {
	if c.Key != nil && !hmac.Equal([]byte(entry.MAC(c.Key)), []byte(mac)) {
		c.found(Finding{ID: entry.ID, Kind: Inserted, Detail: "the entry was not written by this installation, or changed since"})
		return
	}
	c.Unsealed++
}

// Unsigned is how many entries of the chain lie behind the last digest.
func (c *Checker) Unsigned() int64 { return max(c.seq-c.last.Last, 0) }

// End checks that nothing is missing behind the last entry.
func (c *Checker) End() {
	if c.last.Last > c.seq {
		c.found(Finding{Seq: c.seq + 1, Kind: Removed, Detail: fmt.Sprintf("entries %d to %d, which digest %d signed, are gone", c.seq+1, c.last.Last, c.last.No)})
	}
}
