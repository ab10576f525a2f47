//go:build !linux

package wire

func newAlarm() alarm { return newTimerAlarm() }
