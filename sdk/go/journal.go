package ax

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	journalFile = "journal.log"
	lockFile    = "lock"

	// rememberFor is the least time for which an execution is known after it was taken.
	rememberFor = 48 * time.Hour
	// compactFrom is the size below which rewriting the journal is not worth it.
	compactFrom = 4 << 20
	// maxRecord is beyond any record: a result of 64 kB and a message of 4 kB, each byte escaped.
	maxRecord = 1 << 20
)

// shardKey stands for a batch and a shard of it. A hash, because 48 hours of executions are
// kept in memory and a fixed size is a third of the strings.
type shardKey [16]byte

func shardKeyOf(batchID string, shard int) (k shardKey) {
	sum := sha256.Sum256([]byte(batchID + "\x00" + strconv.Itoa(shard)))
	copy(k[:], sum[:])
	return k
}

func (k shardKey) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(k[:])), nil }

func (k *shardKey) UnmarshalText(b []byte) error {
	if hex.DecodedLen(len(b)) != len(k) {
		return errors.New("a shard key has 32 digits")
	}
	_, err := hex.Decode(k[:], b)
	return err
}

// attemptKey is what an execution is told apart by.
type attemptKey struct {
	shard   shardKey
	attempt int
}

// known is what is remembered about a shard: its highest attempt and how that ended.
type known struct {
	execution uint64
	at        int64 // seconds: taken, and later ended
	keep      int64 // seconds for which to remember it, from at
	attempt   int
	state     state // empty while no end is known
}

// record is one line of the journal.
type record struct {
	Kind      string          `json:"k"` // take, end, sent, seen
	Shard     shardKey        `json:"h,omitzero"`
	Attempt   int             `json:"a,omitempty"`
	Execution uint64          `json:"x,omitempty"`
	At        int64           `json:"t,omitempty"`
	Keep      int64           `json:"keep,omitempty"`
	State     state           `json:"s,omitempty"`
	Batch     string          `json:"b,omitempty"` // for whoever reads the file
	Result    json.RawMessage `json:"r,omitempty"`
	Sent      []string        `json:"sent,omitempty"` // executions whose results are committed
}

// spooled is a result that the server has not yet committed.
type spooled struct {
	key  attemptKey
	ref  fencedRef
	body json.RawMessage
}

// journal is the executor's memory on disk: one file of checksummed lines, appended to. It
// holds which executions were taken and how they ended (so that none is started twice), and
// the results that the server has not committed. Safe for concurrent use.
type journal struct {
	log  *slog.Logger
	dir  string
	lock io.Closer

	// syncMu is held during an fsync, so that appends of the meantime share the next one.
	// It is locked before mu.
	syncMu sync.Mutex
	synced uint64

	mu      sync.Mutex
	file    *os.File
	size    int64
	written uint64
	torn    bool // a write ended in the middle of a line
	known   map[shardKey]known
	spool   []*spooled // in the order in which they ended
	bytes   int        // of the bodies in spool
	inSpool map[attemptKey]*spooled
}

// openJournal reads what earlier processes left in dir. A damaged line, such as one that was
// being written when the power failed, is left out and logged; the rest counts. One process
// at a time may hold a directory.
func openJournal(dir string, log *slog.Logger, now time.Time) (*journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make executor directory: %w", err)
	}
	lock, err := lockDir(filepath.Join(dir, lockFile))
	if err != nil {
		return nil, fmt.Errorf("executor directory %s: %w", dir, err)
	}
	j := &journal{log: log, dir: dir, lock: lock, known: make(map[shardKey]known), inSpool: make(map[attemptKey]*spooled)}
	if err := j.load(); err != nil {
		lock.Close()
		return nil, fmt.Errorf("read journal in %s: %w", dir, err)
	}
	// Always begin with a clean file: no damaged lines, nothing that is past its time.
	if err := j.compact(now, nil); err != nil {
		lock.Close()
		return nil, fmt.Errorf("rewrite journal in %s: %w", dir, err)
	}
	return j, nil
}

func (j *journal) close() error {
	j.syncMu.Lock()
	defer j.syncMu.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return nil
	}
	err := errors.Join(j.file.Sync(), j.file.Close(), j.lock.Close())
	j.file = nil
	return err
}

func (j *journal) load() error {
	f, err := os.Open(filepath.Join(j.dir, journalFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, maxRecord)
	damaged, oversized := 0, false
	for {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			oversized = true // the rest of a line without end: leave all of it out
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if len(line) > 0 {
			r, ok := decodeRecord(line)
			blank := len(bytes.TrimSpace(line)) == 0
			if oversized || !blank && (!ok || !j.apply(r)) {
				damaged++
			}
			oversized = false
		}
		if err != nil {
			break
		}
	}
	if damaged > 0 {
		j.log.Warn("left out damaged records of the executor's journal", slog.Int("records", damaged), slog.String("dir", j.dir))
	}
	return nil
}

// apply brings one record of the file into memory. It reports false for what it does not understand.
func (j *journal) apply(r record) bool {
	switch r.Kind {
	case "take", "seen":
		if k, ok := j.known[r.Shard]; ok && k.attempt > r.Attempt {
			return true
		}
		j.known[r.Shard] = known{execution: r.Execution, at: r.At, keep: r.Keep, attempt: r.Attempt, state: r.State}
	case "end":
		var res result
		if json.Unmarshal(r.Result, &res) != nil || !isExecutionID(res.ExecutionID) {
			return false
		}
		j.ended(r)
		j.push(&spooled{
			key: attemptKey{r.Shard, r.Attempt}, body: r.Result,
			ref: fencedRef{executionRef: res.executionRef, Fence: res.Fence},
		})
	case "sent":
		j.drop(r.Sent)
	default:
		return false
	}
	return true
}

func (j *journal) ended(r record) {
	k, ok := j.known[r.Shard]
	// A newer attempt is what counts, and so is the same one given anew after a rejection.
	if ok && (k.attempt != r.Attempt || k.execution != r.Execution) {
		return
	}
	k.attempt, k.execution, k.state, k.at = r.Attempt, r.Execution, r.State, r.At
	k.keep = max(k.keep, int64(rememberFor/time.Second))
	j.known[r.Shard] = k
}

func (j *journal) push(s *spooled) {
	j.spool = append(j.spool, s)
	j.inSpool[s.key] = s
	j.bytes += len(s.body)
}

func (j *journal) drop(executions []string) {
	gone := make(map[string]bool, len(executions))
	for _, id := range executions {
		gone[id] = true
	}
	j.spool = slices.DeleteFunc(j.spool, func(s *spooled) bool {
		if !gone[s.ref.ExecutionID] {
			return false
		}
		if j.inSpool[s.key] == s {
			delete(j.inSpool, s.key)
		}
		j.bytes -= len(s.body)
		return true
	})
}

// find tells what is known about a shard.
func (j *journal) find(k shardKey) (known, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s, ok := j.known[k]
	return s, ok
}

// spooledFor reports whether a result of that attempt waits to be committed.
func (j *journal) spooledFor(k attemptKey) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, ok := j.inSpool[k]
	return ok
}

// backlog is what waits to be committed.
func (j *journal) backlog() (results, bytes int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.spool), j.bytes
}

// pending returns the oldest results, at most n of them and about size bytes, but at least one if there is one.
func (j *journal) pending(n, size int) []*spooled {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i, s := range j.spool {
		if i == n || i > 0 && len(s.body) > size {
			return slices.Clone(j.spool[:i])
		}
		size -= len(s.body)
	}
	return slices.Clone(j.spool)
}

// postpone puts a result behind all others, so that one that is refused holds up nobody.
func (j *journal) postpone(s *spooled) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if i := slices.Index(j.spool, s); i >= 0 {
		j.spool = append(slices.Delete(j.spool, i, i+1), s)
	}
}

func (j *journal) refs() []fencedRef {
	j.mu.Lock()
	defer j.mu.Unlock()
	refs := make([]fencedRef, len(j.spool))
	for i, s := range j.spool {
		refs[i] = s.ref
	}
	return refs
}

// take remembers executions. When it returns nil they are on the disk; otherwise nothing is
// remembered and none may be started.
func (j *journal) take(list []*execution, now time.Time) error {
	if len(list) == 0 {
		return nil
	}
	j.mu.Lock()
	before := make(map[shardKey]known, len(list))
	records := make([]record, len(list))
	for i, e := range list {
		k := shardKeyOf(e.BatchID, e.ShardingID)
		if _, ok := before[k]; !ok {
			before[k] = j.known[k]
		}
		records[i] = record{
			Kind: "take", Shard: k, Attempt: e.Fence.Attempt, Execution: executionNumber(e.ExecutionID), Batch: e.BatchID,
			// It must be known for as long as it may run and be repeated, twice over.
			At: now.Unix(), Keep: max(int64(rememberFor/time.Second), 2*e.TimeoutMs/1000, 2*e.LeaseMs/1000),
		}
		j.apply(records[i])
	}
	at, err := j.append(records)
	j.mu.Unlock()
	if err == nil {
		err = j.sync(at)
	}
	if err != nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		for k, old := range before {
			if old.attempt == 0 {
				delete(j.known, k)
			} else {
				j.known[k] = old
			}
		}
		return fmt.Errorf("write executor journal: %w", err)
	}
	return nil
}

// end puts a result into the spool. It is there in any case; with an error it is only in memory.
func (j *journal) end(k attemptKey, res *result, now time.Time) error {
	body, err := json.Marshal(res)
	if err != nil {
		return fmt.Errorf("encode result: %w", err) // can not happen: strings and numbers
	}
	r := record{
		Kind: "end", Shard: k.shard, Attempt: k.attempt, Execution: executionNumber(res.ExecutionID),
		At: now.Unix(), State: res.State, Result: body,
	}
	j.mu.Lock()
	j.ended(r)
	j.push(&spooled{key: k, body: body, ref: fencedRef{executionRef: res.executionRef, Fence: res.Fence}})
	at, err := j.append([]record{r})
	j.mu.Unlock()
	if err == nil {
		err = j.sync(at)
	}
	if err != nil {
		return fmt.Errorf("write executor journal: %w", err)
	}
	return nil
}

// sent forgets results that the server has committed. It does not wait for the disk: a result
// that comes back after a crash is answered as repeated.
func (j *journal) sent(executions []string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.drop(executions)
	_, err := j.append([]record{{Kind: "sent", Sent: executions}})
	return err
}

// append writes records and returns the mark to sync up to. mu is held.
func (j *journal) append(records []record) (uint64, error) {
	if j.file == nil {
		return 0, os.ErrClosed
	}
	var b []byte
	if j.torn {
		b = append(b, '\n')
	}
	for i := range records {
		var err error
		if b, err = appendRecord(b, &records[i]); err != nil {
			return 0, err
		}
	}
	n, err := j.file.Write(b)
	j.size += int64(n)
	if err != nil {
		j.torn = true
		return 0, err
	}
	j.torn = false
	j.written++
	return j.written, nil
}

// sync returns when everything up to the mark is on the disk. Callers that come while another
// one syncs share the next sync.
func (j *journal) sync(mark uint64) error {
	j.syncMu.Lock()
	defer j.syncMu.Unlock()
	if j.synced >= mark {
		return nil
	}
	j.mu.Lock()
	file, upTo := j.file, j.written
	j.mu.Unlock()
	if file == nil {
		return os.ErrClosed
	}
	if err := file.Sync(); err != nil {
		return err
	}
	j.synced = upTo
	return nil
}

// compactIfWorth rewrites the journal when most of it is history. busy are shards that are
// running now and must be kept however old they are.
func (j *journal) compactIfWorth(now time.Time, busy map[shardKey]bool) error {
	j.mu.Lock()
	live := int64(len(j.known)*110 + j.bytes*2)
	worth := j.size > compactFrom && j.size > 2*live
	j.mu.Unlock()
	if !worth {
		return nil
	}
	return j.compact(now, busy)
}

// compact writes what is still of use to a new file and puts it in the old one's place.
func (j *journal) compact(now time.Time, busy map[shardKey]bool) (err error) {
	j.syncMu.Lock()
	defer j.syncMu.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()

	name := filepath.Join(j.dir, journalFile)
	f, err := os.OpenFile(name+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	w := bufio.NewWriterSize(f, 64<<10)
	var size int64
	var line []byte
	write := func(r *record) error {
		if line, err = appendRecord(line[:0], r); err != nil {
			return err
		}
		n, err := w.Write(line)
		size += int64(n)
		return err
	}
	for k, s := range j.known {
		waits := j.inSpool[attemptKey{k, s.attempt}] != nil
		if now.Unix() > s.at+s.keep && !busy[k] && !waits {
			delete(j.known, k)
			continue
		}
		if err := write(&record{Kind: "seen", Shard: k, Attempt: s.attempt, Execution: s.execution, At: s.at, Keep: s.keep, State: s.state}); err != nil {
			return err
		}
	}
	for _, s := range j.spool {
		var res result
		if err := json.Unmarshal(s.body, &res); err != nil {
			return err
		}
		if err := write(&record{
			Kind: "end", Shard: s.key.shard, Attempt: s.key.attempt, Execution: executionNumber(res.ExecutionID),
			At: now.Unix(), State: res.State, Result: s.body,
		}); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(name+".new", name); err != nil {
		return err
	}
	if err := syncDir(j.dir); err != nil {
		return err
	}
	if j.file != nil {
		j.file.Close()
	}
	j.file, j.size, j.torn, j.synced = f, size, false, j.written
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli) //nolint:gochecknoglobals // a table that nothing writes

// appendRecord adds a line: eight digits of checksum, a blank, JSON. JSON has no line breaks
// inside, so a reader finds the next line after any damage.
func appendRecord(b []byte, r *record) ([]byte, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return b, err
	}
	if len(body) > maxRecord-16 {
		return b, fmt.Errorf("record of %d bytes", len(body))
	}
	b = fmt.Appendf(b, "%08x ", crc32.Checksum(body, castagnoli))
	return append(append(b, body...), '\n'), nil
}

func decodeRecord(line []byte) (r record, ok bool) {
	line, ended := bytes.CutSuffix(line, []byte{'\n'})
	if !ended || len(line) < 10 || line[8] != ' ' {
		return r, false
	}
	sum, err := strconv.ParseUint(string(line[:8]), 16, 32)
	if err != nil || uint32(sum) != crc32.Checksum(line[9:], castagnoli) {
		return r, false
	}
	return r, json.Unmarshal(line[9:], &r) == nil
}

func executionNumber(id string) uint64 {
	if n, err := strconv.ParseUint(id, 10, 64); err == nil {
		return n
	}
	h := fnv.New64a()
	h.Write([]byte(id))
	return h.Sum64()
}
