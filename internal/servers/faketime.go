package servers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// ErrNoFaketime says that libfaketime isn't installed, without which a
// server's clock can't be shifted.
var ErrNoFaketime = errors.New("libfaketime isn't installed: install the package libfaketime (Debian, Ubuntu, Fedora)")

// Clock is what PostgreSQL takes for the time of day: the machine's, shifted.
// Give it to the server's options. Timers and time-outs run on undisturbed:
// only the time of day is another. (Valkey can't be given one: its allocator
// asks for the time before libfaketime is ready to say it.)
type Clock struct {
	library string
	folder  *folder
}

// NewClock returns a clock that is right. Without libfaketime its error wraps
// [ErrNoFaketime].
func NewClock() (*Clock, error) {
	library, err := faketimeLibrary()
	if err != nil {
		return nil, fmt.Errorf("servers: make a clock: %w", err)
	}
	folder, err := newFolder("clock", nil)
	if err != nil {
		return nil, fmt.Errorf("servers: make a clock: %w", err)
	}
	c := &Clock{library: library, folder: folder}
	err = os.Chmod(folder.path, 0o755) //nolint:gosec // the server that reads it may run as another user
	if err == nil {
		err = c.Shift(0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("servers: make a clock: %w", err), c.Close())
	}
	return c, nil
}

// Shift puts the clock that far ahead of the machine's, or behind it. Servers
// that run see it at once.
func (c *Clock) Shift(d time.Duration) error {
	text := strconv.FormatFloat(d.Seconds(), 'f', 3, 64)
	if d >= 0 {
		text = "+" + text
	}
	unfinished := c.file() + ".unfinished"
	err := os.WriteFile(unfinished, []byte(text+"\n"), 0o644) //nolint:gosec // as above
	if err == nil {
		err = os.Rename(unfinished, c.file()) // whole or not at all
	}
	if err != nil {
		return fmt.Errorf("servers: shift a clock: %w", err)
	}
	return nil
}

// Close removes the clock's file. Servers that use it have been stopped.
func (c *Clock) Close() error { return c.folder.remove() }

func (c *Clock) file() string { return filepath.Join(c.folder.path, "shift") }

// environment has a program take this clock for the time; nil: the machine's.
func (c *Clock) environment() []string {
	if c == nil {
		return nil
	}
	return []string{
		"LD_PRELOAD=" + c.library,
		"FAKETIME_TIMESTAMP_FILE=" + c.file(),
		"FAKETIME_NO_CACHE=1",
		"FAKETIME_DONT_FAKE_MONOTONIC=1",
	}
}

// forget removes the shared memory that libfaketime leaves behind when a
// program is killed.
func (c *Clock) forget(pid int) {
	if c == nil {
		return
	}
	for _, name := range []string{"faketime_shm_%d", "sem.faketime_sem_%d"} {
		_ = os.Remove(filepath.Join("/dev/shm", fmt.Sprintf(name, pid)))
	}
}

// faketimeLibrary looks where the packages put it.
func faketimeLibrary() (string, error) {
	for _, pattern := range []string{
		"/usr/lib/*/faketime/libfaketime.so.1",
		"/usr/lib64/faketime/libfaketime.so.1",
		"/usr/local/lib/faketime/libfaketime.so.1",
	} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[0], nil
		}
	}
	return "", ErrNoFaketime
}
