//go:build unix && !linux

package servers

import (
	"bytes"
	"fmt"
	"os/exec"
	"strconv"
	"syscall"
)

// attributes puts a program in its own process group, under user (nil: the
// caller). This system has no death signal: a killed caller leaves it behind.
func attributes(user *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: user}
}

// startAndWait starts cmd, tells how that went, and waits for its end.
func startAndWait(cmd *exec.Cmd, started chan<- error) {
	err := cmd.Start()
	started <- err
	if err == nil {
		_ = cmd.Wait()
	}
}

// descendants lists the processes below pid.
func descendants(pid int) ([]int, error) {
	text, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		return nil, fmt.Errorf("ps: %w", err)
	}
	children := map[int][]int{}
	for line := range bytes.Lines(text) {
		var child, parent int
		if _, err := fmt.Sscan(string(line), &child, &parent); err == nil {
			children[parent] = append(children[parent], child)
		}
	}
	found := children[pid]
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i]]...)
	}
	return found, nil
}

// alive tells whether a process still runs; one that only waits to be reaped
// does not.
func alive(pid int) bool {
	state, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	state = bytes.TrimSpace(state)
	return err == nil && len(state) > 0 && state[0] != 'Z'
}
