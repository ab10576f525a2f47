package wire

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// fdAlarm is a timerfd that the runtime polls. Go's own timers are rounded up
// to whole milliseconds when a process is idle; this one is right to tens of
// microseconds.
type fdAlarm struct {
	fd   int
	file *os.File
}

func newAlarm() alarm {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil { // out of descriptors
		return newTimerAlarm()
	}
	return &fdAlarm{fd: fd, file: os.NewFile(uintptr(fd), "timerfd")}
}

func (a *fdAlarm) set(d time.Duration) {
	value := unix.NsecToTimespec(int64(max(d, 1))) // zero would disarm it
	_ = unix.TimerfdSettime(a.fd, 0, &unix.ItimerSpec{Value: value}, nil)
}

func (a *fdAlarm) wait() {
	var expirations [8]byte
	_, _ = a.file.Read(expirations[:])
}

func (a *fdAlarm) close() { _ = a.file.Close() }
