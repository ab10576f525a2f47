package wire

import "time"

// alarm wakes one waiting goroutine. It may be set again, from another
// goroutine too, while it is waited for.
type alarm interface {
	set(d time.Duration)
	wait()
	close()
}

// timerAlarm is right to about a millisecond: good enough where there is
// nothing better.
type timerAlarm struct{ timer *time.Timer }

func newTimerAlarm() *timerAlarm { return &timerAlarm{timer: time.NewTimer(time.Hour)} }

func (a *timerAlarm) set(d time.Duration) { a.timer.Reset(d) }
func (a *timerAlarm) wait()               { <-a.timer.C }
func (a *timerAlarm) close()              { a.timer.Stop() }
