package batch

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// shanghai is the offset that an id leaves out.
const shanghai = 8 * 60 * 60

const (
	stampSeconds = "20060102150405"
	dayMillis    = 24 * 60 * 60 * 1000
)

// ID builds the id of a firing: <jobId>-<yyyyMMddHHmmss[SSS]> with the planned wall
// time in its zone (dueAt carries the zone), milliseconds only when not zero, the offset
// appended (p0530, m0400, z) unless it is +08:00, and .tN for trigger number N > 1. It is
// computed, so two servers that compute the same firing write the same key.
func ID(jobID int64, dueAt time.Time, triggerNo int) string {
	var b strings.Builder
	b.WriteString(strconv.FormatInt(jobID, 10))
	b.WriteByte('-')
	b.WriteString(dueAt.Format(stampSeconds))
	if ms := dueAt.Nanosecond() / int(time.Millisecond); ms != 0 {
		fmt.Fprintf(&b, "%03d", ms)
	}
	_, offset := dueAt.Zone()
	switch {
	case offset == shanghai:
	case offset == 0:
		b.WriteByte('z')
	case offset > 0:
		fmt.Fprintf(&b, "p%02d%02d", offset/3600, offset/60%60)
	default:
		fmt.Fprintf(&b, "m%02d%02d", -offset/3600, -offset/60%60)
	}
	if triggerNo > 1 {
		b.WriteString(".t")
		b.WriteString(strconv.Itoa(triggerNo))
	}
	return b.String()
}

// FreshID builds the id of a batch that no schedule computed (manual, API, event): the
// same shape with a random tail.
func FreshID(jobID int64, dueAt time.Time, tail string) string {
	return ID(jobID, dueAt, 0) + "-" + tail
}

// Day is the UTC day of an instant, counted from the epoch: the partition of its rows.
func Day(ms int64) int { return int(ms / dayMillis) }

// ParseID reads the job and the UTC day back from an id, so that a row is found
// without searching every day. ok is false for a text that is no batch id.
func ParseID(id string) (jobID int64, day int, ok bool) {
	head, rest, found := strings.Cut(id, "-")
	jobID, err := strconv.ParseInt(head, 10, 64)
	if !found || err != nil || jobID <= 0 {
		return 0, 0, false
	}
	due, ok := dueOf(rest)
	return jobID, Day(due), ok && len(id) <= 64
}

// DueOf reads the due time (milliseconds since the epoch) back from a batch's id. ok is false for a text that
// is no batch id.
func DueOf(id string) (ms int64, ok bool) {
	_, rest, _ := strings.Cut(id, "-")
	return dueOf(rest)
}

// dueOf reads the due time from what follows the job in an id.
func dueOf(rest string) (due int64, ok bool) {
	if len(rest) < len(stampSeconds) {
		return 0, false
	}
	stamp, tail := rest[:len(stampSeconds)], rest[len(stampSeconds):]
	ms := 0
	if len(tail) >= 3 && digits(tail[:3]) {
		ms, _ = strconv.Atoi(tail[:3])
		tail = tail[3:]
	}
	offset := shanghai
	switch {
	case strings.HasPrefix(tail, "z"):
		offset = 0
	case len(tail) >= 5 && (tail[0] == 'p' || tail[0] == 'm') && digits(tail[1:5]):
		hours, _ := strconv.Atoi(tail[1:3])
		minutes, _ := strconv.Atoi(tail[3:5])
		offset = hours*3600 + minutes*60
		if tail[0] == 'm' {
			offset = -offset
		}
	}
	at, err := time.Parse(stampSeconds, stamp)
	if err != nil {
		return 0, false
	}
	return at.UnixMilli() - int64(offset)*1000 + int64(ms), true
}

func digits(s string) bool {
	for _, c := range s {
		if c < '0' || c > '9' {
			return false
		}
	}
	return s != ""
}

// Bits of an execution id: day of the batch's due time, bucket, sequence.
const (
	sequenceBits = 32
	bucketBits   = 6
)

// Buckets is how many units of ownership there are; fixed at install.
const Buckets = 1 << bucketBits

// ExecutionID builds the id of an execution from the UTC day of its batch's due time, its
// bucket and a sequence of the bucket. It stays below 2^53, and the day can be read back.
func ExecutionID(day, bucket int, sequence int64) int64 {
	return int64(day)<<(bucketBits+sequenceBits) | int64(bucket)<<sequenceBits | sequence&(1<<sequenceBits-1)
}

// ExecutionDay reads the day back from an execution id.
func ExecutionDay(id int64) int { return int(id >> (bucketBits + sequenceBits)) }

// ExecutionBucket reads the bucket back from an execution id.
func ExecutionBucket(id int64) int { return int(id >> sequenceBits & (1<<bucketBits - 1)) }

// TraceID names one execution on every log line of server and executor.
func TraceID(batchID string, executionID int64) string {
	return batchID + "#" + strconv.FormatInt(executionID, 10)
}
