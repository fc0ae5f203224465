package store

import (
	"context"
	"crypto/ed25519"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-sql-driver/mysql"

	"github.com/ax-scheduler/ax/internal/audit"
	"github.com/ax-scheduler/ax/sql/migrate"
)

// AuditEntry says who did what to what.
type AuditEntry struct {
	ID         int64 `gorm:"primaryKey;autoIncrement:false"`
	At         int64
	NSID       int64 `gorm:"column:ns_id"` // 0 = the platform
	ActorType  string
	ActorID    string
	ActorName  string
	IP         string `gorm:"column:ip"`
	RequestID  string
	Action     string
	ObjectType string
	ObjectID   string
	ObjectName string
	Outcome    string
	BeforeJSON *string `gorm:"column:before_json"`
	AfterJSON  *string `gorm:"column:after_json"`
	DiffJSON   *string `gorm:"column:diff_json"`
	// MAC shows that ax wrote it as it is.
	MAC string `gorm:"column:mac"`
}

// TableName is gorm's.
func (AuditEntry) TableName() string { return "audit_log" }

// authentic is the entry as its MAC covers it.
func (e *AuditEntry) authentic() audit.Entry {
	return audit.Entry{
		ID: e.ID, At: e.At, NS: e.NSID, ActorType: e.ActorType, ActorID: e.ActorID, ActorName: e.ActorName, IP: e.IP, RequestID: e.RequestID, Action: e.Action,
		ObjectType: e.ObjectType, ObjectID: e.ObjectID, ObjectName: e.ObjectName, Outcome: e.Outcome, Before: e.BeforeJSON, After: e.AfterJSON, Diff: e.DiffJSON,
	}
}

// audit appends an entry in the transaction of the change it tells of.
func (s *Store) audit(ctx context.Context, tx *sql.Tx, e *AuditEntry) error {
	if e == nil {
		return errors.New("a change without an audit entry")
	}
	if s.auditKey == nil {
		return errors.New("audit: this store was opened without the key of the trail")
	}
	e.ID, e.ActorName, e.ObjectName = TimedID(e.At), cut(e.ActorName, 128), cut(e.ObjectName, 128)
	e.MAC = e.authentic().MAC(s.auditKey)
	_, err := tx.ExecContext(ctx, `INSERT INTO audit_log (id, at, ns_id, actor_type, actor_id, actor_name, ip, request_id, action, object_type, object_id, object_name, outcome, before_json, after_json, diff_json, mac)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		e.ID, e.At, e.NSID, e.ActorType, e.ActorID, e.ActorName, e.IP, e.RequestID, e.Action, e.ObjectType, e.ObjectID, e.ObjectName, e.Outcome, e.BeforeJSON, e.AfterJSON, e.DiffJSON, e.MAC)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// Audit appends an entry on its own: for logins and refusals, which change nothing else.
func (s *Store) Audit(ctx context.Context, e *AuditEntry) error {
	return s.inTx(ctx, s.main, func(tx *sql.Tx) error { return s.audit(ctx, tx, e) })
}

// Audit appends an entry in this transaction.
func (b *Bucket) Audit(e *AuditEntry) error { return b.s.audit(b.ctx, b.tx, e) }

// AuditFilter narrows the audit trail. Zero fields do not filter.
type AuditFilter struct {
	NS       []int64 // only these namespaces; nil = all
	Actor    string
	Action   string
	Object   string // object id or name
	Outcome  string
	Request  string
	IP       string
	From, To int64
	Before   int64 // id of the last entry of the page before
	Limit    int
}

// AuditTrail lists entries, newest first.
func (s *Store) AuditTrail(ctx context.Context, f AuditFilter) ([]AuditEntry, error) {
	q := s.gr.WithContext(ctx)
	if f.NS != nil {
		q = q.Where("ns_id IN ?", append([]int64{-1}, f.NS...))
	}
	if f.Actor != "" {
		q = q.Where("actor_name = ?", f.Actor)
	}
	// Comparing an ASCII column with other text is an error on MySQL, and finds nothing.
	if f.Action != "" && ascii(f.Action) {
		q = q.Where("action = ?", f.Action)
	} else if f.Action != "" {
		return nil, nil
	}
	switch {
	case f.Object == "":
	case ascii(f.Object):
		q = q.Where("(object_id = ? OR object_name = ?)", f.Object, f.Object)
	case !utf8.ValidString(f.Object):
		return nil, nil
	default:
		q = q.Where("object_name = ?", f.Object)
	}
	for column, value := range map[string]string{"outcome": f.Outcome, "request_id": f.Request, "ip": f.IP} {
		if value == "" {
			continue
		}
		if !ascii(value) {
			return nil, nil
		}
		q = q.Where(column+" = ?", value)
	}
	if f.From > 0 {
		q = q.Where("at >= ?", f.From)
	}
	if f.To > 0 {
		q = q.Where("at < ?", f.To)
	}
	if f.Before > 0 {
		q = q.Where("id < ?", f.Before)
	}
	var out []AuditEntry
	err := q.Order("id DESC").Limit(f.Limit).Find(&out).Error
	return out, unavailable(err)
}

// The chain. An entry gets its place in it a little after it was written, in a transaction of its own: the ids of entries are not in
// the order of their commits, so that whoever asked for «behind the last» would skip what commits late.

const (
	// sealPage bounds the entries of one sealing.
	sealPage = 500
	// sealBack is how far behind the newest sealed entry one may still appear: longer than any transaction lasts.
	sealBack = 15 * time.Minute
)

// Seal gives entries that have no place in the chain theirs; all looks for them in the whole trail and not only among those
// of late. more says that there may be others. The bucket is 0.
func (b *Bucket) Seal(now int64, all bool) (more bool, err error) {
	var seq, newest int64
	var chain string
	err = b.tx.QueryRowContext(b.ctx, "SELECT seq, chain, (SELECT MAX(audit_id) FROM audit_seal) FROM audit_seal ORDER BY seq DESC LIMIT 1").Scan(&seq, &chain, &newest)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return false, fmt.Errorf("read the end of the audit chain: %w", err)
	}
	from := int64(0)
	if !all && newest > 0 {
		from = min(newest, now<<timedBits) - sealBack.Milliseconds()<<timedBits
	}
	found, err := b.tx.QueryContext(b.ctx, "SELECT "+auditColumns+" FROM audit_log l LEFT JOIN audit_seal s ON s.audit_id = l.id WHERE l.id >= ? AND s.audit_id IS NULL ORDER BY l.id LIMIT ?", from, sealPage)
	if err != nil {
		return false, fmt.Errorf("read unsealed audit entries: %w", err)
	}
	list, err := scanAudit(found)
	if err != nil || len(list) == 0 {
		return false, err
	}
	args := make([]any, 0, 3*len(list))
	for _, e := range list {
		seq++
		chain = e.authentic().Link(chain, e.MAC)
		args = append(args, seq, e.ID, chain)
	}
	if _, err := b.tx.ExecContext(b.ctx, "INSERT INTO audit_seal (seq, audit_id, chain) VALUES "+rows(len(list), 3), args...); err != nil {
		return false, fmt.Errorf("seal audit entries: %w", err)
	}
	return len(list) == sealPage, nil
}

// Digest signs what was sealed since the last digest; false when there is nothing.
func (b *Bucket) Digest(key ed25519.PrivateKey, now int64) (d audit.Digest, made bool, err error) {
	last, err := lastDigest(b.ctx, b.tx)
	if err != nil {
		return d, false, err
	}
	d = audit.Digest{No: last.No + 1, First: last.Last + 1, At: now}
	if last.No > 0 {
		d.Prev = last.Hash()
	}
	err = b.tx.QueryRowContext(b.ctx, "SELECT seq, chain FROM audit_seal WHERE seq > ? ORDER BY seq DESC LIMIT 1", last.Last).Scan(&d.Last, &d.Root)
	if errors.Is(err, sql.ErrNoRows) {
		return d, false, nil
	}
	if err != nil {
		return d, false, fmt.Errorf("read the end of the audit chain: %w", err)
	}
	d.Sign(key)
	if _, err := b.tx.ExecContext(b.ctx, "INSERT INTO audit_digest (no, first_seq, last_seq, root, prev, at, signature) VALUES (?, ?, ?, ?, ?, ?, ?)", d.No, d.First, d.Last, d.Root, d.Prev, d.At, d.Signature); err != nil {
		return d, false, fmt.Errorf("write audit digest: %w", err)
	}
	return d, true, nil
}

type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

const digestColumns = "no, first_seq, last_seq, root, prev, at, signature"

func lastDigest(ctx context.Context, q querier) (d audit.Digest, err error) {
	err = q.QueryRowContext(ctx, "SELECT "+digestColumns+" FROM audit_digest ORDER BY no DESC LIMIT 1").Scan(&d.No, &d.First, &d.Last, &d.Root, &d.Prev, &d.At, &d.Signature)
	if errors.Is(err, sql.ErrNoRows) {
		return audit.Digest{}, nil
	}
	if err != nil {
		return d, fmt.Errorf("read the last audit digest: %w", err)
	}
	return d, nil
}

const auditColumns = "l.id, l.at, l.ns_id, l.actor_type, l.actor_id, l.actor_name, l.ip, l.request_id, l.action, l.object_type, l.object_id, l.object_name, l.outcome, l.before_json, l.after_json, l.diff_json, l.mac"

func scanAudit(rows *sql.Rows) (list []AuditEntry, err error) {
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var e AuditEntry
		if err := rows.Scan(&e.ID, &e.At, &e.NSID, &e.ActorType, &e.ActorID, &e.ActorName, &e.IP, &e.RequestID, &e.Action, &e.ObjectType, &e.ObjectID, &e.ObjectName, &e.Outcome, &e.BeforeJSON, &e.AfterJSON, &e.DiffJSON, &e.MAC); err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, rows.Err()
}

// SealedEntry is an entry at its place in the chain. Entry is nil when it is gone.
type SealedEntry struct {
	Seq, ID int64
	Chain   string
	Entry   *audit.Entry
	MAC     string
}

// AuditChain walks the trail: all digests, then all sealed entries, then what is not sealed yet, each in their order.
func (s *Store) AuditChain(ctx context.Context, digest func(audit.Digest) error, each func(SealedEntry) error, loose func(e audit.Entry, mac string) error) error {
	digests, err := s.read.QueryContext(ctx, "SELECT "+digestColumns+" FROM audit_digest ORDER BY no")
	if err != nil {
		return unavailable(err)
	}
	defer func() { _ = digests.Close() }()
	for digests.Next() {
		var d audit.Digest
		if err := digests.Scan(&d.No, &d.First, &d.Last, &d.Root, &d.Prev, &d.At, &d.Signature); err != nil {
			return unavailable(err)
		}
		if err := digest(d); err != nil {
			return err
		}
	}
	if err := errors.Join(digests.Err(), digests.Close()); err != nil {
		return unavailable(err)
	}
	for after := int64(0); ; {
		page, err := s.sealedAfter(ctx, after)
		if err != nil {
			return unavailable(err)
		}
		for _, e := range page {
			if err := each(e); err != nil {
				return err
			}
			after = e.Seq
		}
		if len(page) < sealPage {
			break
		}
	}
	for after := int64(0); ; {
		rows, err := s.read.QueryContext(ctx, "SELECT "+auditColumns+" FROM audit_log l LEFT JOIN audit_seal s ON s.audit_id = l.id WHERE l.id > ? AND s.audit_id IS NULL ORDER BY l.id LIMIT ?", after, sealPage)
		if err != nil {
			return unavailable(err)
		}
		list, err := scanAudit(rows)
		if err != nil {
			return unavailable(err)
		}
		for i := range list {
			if err := loose(list[i].authentic(), list[i].MAC); err != nil {
				return err
			}
			after = list[i].ID
		}
		if len(list) < sealPage {
			return nil
		}
	}
}

func (s *Store) sealedAfter(ctx context.Context, after int64) (page []SealedEntry, err error) {
	rows, err := s.read.QueryContext(ctx, "SELECT seq, audit_id, chain FROM audit_seal WHERE seq > ? ORDER BY seq LIMIT ?", after, sealPage)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var ids []any
	for rows.Next() {
		var e SealedEntry
		if err := rows.Scan(&e.Seq, &e.ID, &e.Chain); err != nil {
			return nil, err
		}
		page = append(page, e)
		ids = append(ids, e.ID)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil || len(page) == 0 {
		return nil, err
	}
	found, err := s.read.QueryContext(ctx, "SELECT "+auditColumns+" FROM audit_log l WHERE l.id IN ("+marks(len(ids))+")", ids...)
	if err != nil {
		return nil, err
	}
	list, err := scanAudit(found)
	if err != nil {
		return nil, err
	}
	entries := make(map[int64]*AuditEntry, len(list))
	for i := range list {
		entries[list[i].ID] = &list[i]
	}
	for i := range page {
		if e := entries[page[i].ID]; e != nil {
			a := e.authentic()
			page[i].Entry, page[i].MAC = &a, e.MAC
		}
	}
	return page, nil
}

// ProtectAudit makes the tables of the trail append-only on MySQL by triggers, where the server's user may make some; on SQLite
// the schema has them. The error says what an administrator can do.
func (s *Store) ProtectAudit(ctx context.Context) error {
	if s.dialect == migrate.SQLite {
		return nil
	}
	for _, table := range []string{"audit_log", "audit_seal", "audit_digest"} {
		for _, what := range []string{"UPDATE", "DELETE"} {
			name := table + "_no_" + strings.ToLower(what)
			var there int
			if err := s.main.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.triggers WHERE trigger_schema = DATABASE() AND trigger_name = ?", name).Scan(&there); err != nil {
				return unavailable(err)
			}
			if there > 0 {
				continue
			}
			statement := "CREATE TRIGGER " + name + " BEFORE " + what + " ON " + table + " FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '" + table + " is append-only'"
			_, err := s.main.ExecContext(ctx, statement)
			var refused *mysql.MySQLError
			if errors.As(err, &refused) && refused.Number == errTriggerExists { // another server was faster
				continue
			}
			if err != nil {
				return fmt.Errorf("the audit trail's tables can not be made append-only; let an administrator run: %s; the database says: %w", statement, err)
			}
		}
	}
	return nil
}

// errTriggerExists is MySQL's ER_TRG_ALREADY_EXISTS.
const errTriggerExists = 1359
