package schedule

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/ax-scheduler/ax/internal/message"
)

// maxJitter is more than any jitter.
const maxJitter = Duration(24 * time.Hour)

// jitterLook is how many fires are looked at for the shortest distance between two.
const jitterLook = 500

// Start is the instant at which a fire that is due at dueAt is started: dueAt, or as far behind it as the
// trigger's jitter spreads it. It is the same whoever asks and whenever, it is never before dueAt, and it is
// before the trigger's next fire. What is planned, counted and named stays dueAt.
func (s *Schedule) Start(job int64, no int, dueAt time.Time) time.Time {
	room := s.room(dueAt)
	if room == 0 {
		return dueAt
	}
	var key [24]byte
	binary.BigEndian.PutUint64(key[:8], uint64(job))
	binary.BigEndian.PutUint64(key[8:16], uint64(no))
	binary.BigEndian.PutUint64(key[16:], uint64(dueAt.UnixMilli()))
	sum := sha256.Sum256(key[:])
	// Cut to the whole of the hash, so that the bias of the remainder is nothing to speak of.
	part := binary.BigEndian.Uint64(sum[:8]) % (uint64(room) + 1)
	return dueAt.Add(time.Duration(part) * time.Millisecond)
}

// room is how far a fire may be spread, in milliseconds.
func (s *Schedule) room(dueAt time.Time) int64 {
	room := time.Duration(s.spec.Jitter).Milliseconds()
	if room == 0 {
		return 0
	}
	if next, ok := s.Next(dueAt); ok {
		room = min(room, next.UnixMilli()-dueAt.UnixMilli()-1)
	}
	return room
}

func refuseJitter(spec Spec) *message.Invalid {
	if spec.Jitter < 0 || spec.Jitter >= maxJitter {
		return refuseField("jitter", codeJitterRange, spec.Jitter.String(), "",
			fmt.Sprintf("jitter %s is out of range; write 0s to less than 24h, such as 5m.", spec.Jitter),
			fmt.Sprintf("抖动 %s 超出范围；请写 0s 到 24h（不含）之间的时长，例如 5m。", spec.Jitter))
	}
	if rest := spec.Jitter % Duration(time.Millisecond); rest != 0 {
		return refuseField("jitter", codeJitterRange, spec.Jitter.String(), (spec.Jitter - rest).String(),
			fmt.Sprintf("jitter %s is finer than a millisecond.", spec.Jitter),
			fmt.Sprintf("抖动 %s 的精度超过毫秒。", spec.Jitter))
	}
	return nil
}

// warnJitter tells of a jitter that does not fit between two fires.
func (s *Schedule) warnJitter(from time.Time, warn warnFunc) {
	if s.spec.Jitter == 0 {
		return
	}
	shortest := time.Duration(0)
	last, ok := s.Next(from)
	for n := 0; ok && n < jitterLook; n++ {
		var next time.Time
		if next, ok = s.Next(last); ok {
			if gap := next.Sub(last); shortest == 0 || gap < shortest {
				shortest = gap
			}
			last = next
		}
	}
	if shortest == 0 || time.Duration(s.spec.Jitter) < shortest {
		return
	}
	warn(warnJitterCapped,
		fmt.Sprintf("Note: a jitter of %s does not fit between two firings that are %s apart; there each starts before the next one is due.", s.spec.Jitter, Duration(shortest)),
		fmt.Sprintf("提示：抖动 %s 不小于相邻两次触发的最短间隔 %s；此时每次触发都会在下一次到期之前启动。", s.spec.Jitter, Duration(shortest)))
}

// spread says when a fire starts that jitter spreads, or is nil.
func (s *Schedule) spread(job int64, no int, dueAt time.Time) *message.Text {
	room := s.room(dueAt)
	if room == 0 {
		return nil
	}
	say := func(t time.Time) string { return t.In(s.zone.loc).Format("15:04:05.999") }
	if job != 0 && no != 0 {
		at := say(s.Start(job, no, dueAt))
		return &message.Text{EN: "starts at " + at + " (jitter)", ZH: "将于 " + at + " 启动（抖动）"}
	}
	first, last := say(dueAt), say(dueAt.Add(time.Duration(room)*time.Millisecond))
	return &message.Text{EN: "starts between " + first + " and " + last + " (jitter)", ZH: "将在 " + first + " 至 " + last + " 之间启动（抖动）"}
}
