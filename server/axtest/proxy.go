package axtest

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Proxy stands between a client and a server, and is the network that tests break. It is our own because it must
// know a little of MySQL's protocol: to lose the answer to a COMMIT and nothing else.
type Proxy struct {
	// Address is where clients connect.
	Address string

	mu     sync.Mutex
	target string
	off    bool
	stall  bool
	slow   time.Duration
	every  int // of so many statements one is answered with a deadlock; 0 = none
	asked  int
	locked int // statements that were
	lose   int // commits whose answer is to be lost
	lost   int
	open   map[net.Conn]struct{}
	moved  chan struct{} // closed when stall ends
}

// NewProxy starts a proxy in front of an address; it ends with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &Proxy{Address: l.Addr().String(), target: target, open: map[net.Conn]struct{}{}, moved: make(chan struct{})}
	t.Cleanup(func() {
		_ = l.Close()
		p.Stall(false)
		p.Cut(true)
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	return p
}

// Cut closes every connection and refuses new ones, or lets them through again.
func (p *Proxy) Cut(off bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.off = off
	if off {
		p.close()
	}
}

func (p *Proxy) close() {
	for c := range p.open {
		_ = c.Close()
	}
}

// Stall makes the network swallow everything in silence: connections stay open and nothing passes. When that
// ends the connections are reset, as they are when packets were lost for long.
func (p *Proxy) Stall(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stall == on {
		return
	}
	p.stall = on
	if on {
		p.moved = make(chan struct{})
		return
	}
	close(p.moved)
	p.close()
}

// Slow makes everything that a client says arrive that much later.
func (p *Proxy) Slow(by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slow = by
}

// Deadlocks answers one of so many changes to a bucket's lease row or to an execution as the database does that chose
// the transaction as the victim of a deadlock; 0 ends that. It returns how many were answered so.
func (p *Proxy) Deadlocks(every int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.every = every
	return p.locked
}

// victim tells whether a client's packet is a statement that is to be answered with a deadlock; p.mu is held.
func (p *Proxy) victim(packet []byte) bool {
	const query = 3
	if p.every == 0 || len(packet) < 6 || packet[4] != query || int(packet[0])|int(packet[1])<<8|int(packet[2])<<16 != len(packet)-4 {
		return false
	}
	if !bytes.Contains(packet, []byte("bucket_lease")) && !bytes.HasPrefix(packet[5:], []byte("INSERT")) && !bytes.HasPrefix(packet[5:], []byte("UPDATE")) {
		return false
	}
	p.asked++
	if p.asked%p.every != 0 {
		return false
	}
	p.locked++
	return true
}

// deadlock is the database's answer to the victim of a deadlock.
func deadlock() []byte {
	const text = "Deadlock found when trying to get lock; try restarting transaction"
	packet := append([]byte{0, 0, 0, 1, 0xff, 0xbd, 0x04, '#', '4', '0', '0', '0', '1'}, text...)
	packet[0] = byte(len(packet) - 4)
	return packet
}

// Target makes new connections go elsewhere.
func (p *Proxy) Target(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = address
	p.close()
}

// LoseCommits makes the next n commits reach the database and their answers be lost with their connections.
func (p *Proxy) LoseCommits(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = n
}

// Lost counts the commits whose answer was lost.
func (p *Proxy) Lost() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

func (p *Proxy) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	p.mu.Lock()
	target, off := p.target, p.off
	p.mu.Unlock()
	if off {
		return
	}
	to, err := net.DialTimeout("tcp", target, 2*time.Second)
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	p.mu.Lock()
	p.open[c], p.open[to] = struct{}{}, struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.open, c)
		delete(p.open, to)
		p.mu.Unlock()
	}()
	done := make(chan struct{}, 2)
	var mute atomic.Bool // what the server says is not handed on any more
	go func() {
		p.pass(c, to, true, &mute)
		done <- struct{}{}
	}()
	go func() {
		p.pass(to, c, false, &mute)
		done <- struct{}{}
	}()
	<-done
}

// pass copies from one side to the other until either ends.
func (p *Proxy) pass(from, to net.Conn, asks bool, mute *atomic.Bool) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			p.mu.Lock()
			stall, moved, slow := p.stall, p.moved, p.slow
			// A packet is its length (3 bytes), a number, and a command: 3 is a query.
			losing := asks && p.lose > 0 && n > 5 && buffer[4] == 3 && bytes.EqualFold(buffer[5:n], []byte("COMMIT"))
			if losing {
				p.lose--
				p.lost++
			}
			victim := asks && p.victim(buffer[:n])
			p.mu.Unlock()
			if stall {
				<-moved
				return
			}
			if victim {
				// The database never hears of it; the client ends the transaction itself.
				if _, err := from.Write(deadlock()); err != nil {
					return
				}
				continue
			}
			if asks && slow > 0 {
				Pause(slow)
			}
			if losing {
				// It reaches the database, which has its time for it.
				const enough = 100 * time.Millisecond
				mute.Store(true)
				_, _ = to.Write(buffer[:n])
				Pause(enough)
				return
			}
			if !asks && mute.Load() {
				continue
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
