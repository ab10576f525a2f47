package wire

import (
	"net"
	"sync"
	"time"

	"github.com/effectonce/effectonce/internal/clock"
)

// queued bounds the bytes that a link keeps; one chunk may pass it.
const queued = 4 << 20

// link is one direction of a connection: a queue of chunks, each written no
// earlier than its delay after it was received. Chunks travel side by side: a
// delay costs latency, not throughput.
type link struct {
	session *session
	to      net.Conn

	mu       sync.Mutex
	changed  sync.Cond
	queue    []chunk
	bytes    int
	finished bool // nothing more comes: the link ends when the queue is empty
	stopped  bool // the link ends now
	muted    bool // what was and is sent is thrown away
	ignoring bool // what is sent from now on is thrown away
	alarm    alarm
	asleep   bool // the alarm is waited for
}

type chunk struct {
	data     []byte
	received time.Time
	extra    time.Duration
	hold     <-chan struct{} // instead of data: nothing behind it passes before it is closed
}

func newLink(s *session, to net.Conn) *link {
	l := &link{session: s, to: to}
	l.changed.L = &l.mu
	return l
}

// send queues bytes, which the link owns from now on.
func (l *link) send(data []byte, extra time.Duration) {
	if len(data) > 0 {
		l.put(chunk{data: data, received: clock.Now(), extra: extra})
	}
}

// holdUntil lets nothing that is sent from now on pass before c is closed.
func (l *link) holdUntil(c <-chan struct{}) { l.put(chunk{hold: c}) }

func (l *link) put(c chunk) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.bytes >= queued && !l.deaf() {
		l.changed.Wait()
	}
	if l.deaf() {
		return
	}
	l.queue = append(l.queue, c)
	l.bytes += len(c.data)
	l.changed.Broadcast()
}

func (l *link) deaf() bool { return l.finished || l.stopped || l.muted || l.ignoring }

func (l *link) finish() { l.change(func() { l.finished = true }) }
func (l *link) stop()   { l.change(func() { l.stopped = true }) }
func (l *link) mute()   { l.change(func() { l.muted, l.queue, l.bytes = true, nil, 0 }) }
func (l *link) ignore() { l.change(func() { l.ignoring = true }) }

// wake has the writer look at the delay again.
func (l *link) wake() { l.change(func() {}) }

func (l *link) change(how func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	how()
	if l.asleep {
		l.alarm.set(0)
	}
	l.changed.Broadcast()
}

// run writes until the link is finished or stopped.
func (l *link) run() {
	defer func() {
		if l.alarm != nil {
			l.alarm.close()
		}
	}()
	for {
		c, ok := l.next()
		if !ok {
			return
		}
		if c.hold != nil {
			l.session.await(c.hold)
			continue
		}
		if !l.session.pass() {
			return
		}
		if l.silent() {
			continue
		}
		if _, err := l.to.Write(c.data); err != nil {
			l.mute() // the other direction finds out by itself
		}
	}
}

func (l *link) silent() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.muted
}

// next takes the first chunk when its time has come.
func (l *link) next() (chunk, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if l.stopped || l.finished && len(l.queue) == 0 {
			return chunk{}, false
		}
		if len(l.queue) == 0 {
			l.changed.Wait()
			continue
		}
		c := l.queue[0]
		if c.hold == nil {
			if wait := l.session.proxy.linkDelay() + c.extra; wait > 0 {
				if left := clock.Until(c.received.Add(wait)); left > 0 {
					l.sleep(left)
					continue
				}
			}
		}
		l.queue[0] = chunk{}
		l.queue = l.queue[1:]
		l.bytes -= len(c.data)
		l.changed.Broadcast()
		return c, true
	}
}

// sleep waits without the lock, for d or until something has changed.
func (l *link) sleep(d time.Duration) {
	if l.alarm == nil {
		l.alarm = newAlarm()
	}
	l.alarm.set(d)
	l.asleep = true
	l.mu.Unlock()
	l.alarm.wait()
	l.mu.Lock()
	l.asleep = false
}
