package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// How long a server may take to start, and to stop, when the context says
// nothing shorter.
const (
	startLimit = 60 * time.Second
	stopLimit  = 15 * time.Second
	probePause = 10 * time.Millisecond
)

// ErrNotOwned is returned by everything that would stop, kill, restart or
// pause a server that this package did not start.
var ErrNotOwned = errors.New("the server is not ours, it was named by the environment")

// errEnded says that a program ended while it was starting.
var errEnded = errors.New("the program ended while it was starting")

// server is one program, started any number of times on the same port. A zero
// launch means that the program belongs to somebody else.
type server struct {
	title  string // what messages call it: "PostgreSQL"
	folder *folder
	launch launch

	mu      sync.Mutex
	running *running
	stopped bool
}

// launch tells how a program is started, asked whether it serves, and stopped.
type launch struct {
	program string
	args    []string
	clock   *Clock // nil: the machine's
	user    *syscall.Credential
	stop    syscall.Signal
	ready   func(ctx context.Context, pid int) error
}

// running is one life of the program.
type running struct {
	pid  int
	done chan struct{} // closed when the program has been waited for
}

// Owned tells whether this package started the server.
func (s *server) Owned() bool { return s.launch.program != "" }

// Stop ends the server and removes its folder. A server that is not ours is
// left alone, without an error. Stop may be called more than once.
func (s *server) Stop(ctx context.Context) error {
	if !s.Owned() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	s.stopped = true
	err := s.end(ctx, s.launch.stop)
	return errors.Join(err, s.folder.remove())
}

// Kill ends the server and all its children at once, by SIGKILL, and leaves its
// files as they are: for the server it is as if the power had failed.
func (s *server) Kill() error {
	if !s.Owned() {
		return s.refuse("kill")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end(context.Background(), syscall.SIGKILL)
}

// Restart kills the server if it runs, and starts it again on the same port
// with the files that it left.
func (s *server) Restart(ctx context.Context) error {
	if !s.Owned() {
		return s.refuse("restart")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return fmt.Errorf("servers: restart %s: it has been stopped", s.title)
	}
	if err := s.end(ctx, syscall.SIGKILL); err != nil {
		return err
	}
	return s.start(ctx)
}

// Pause stops the server and its children in mid-air (SIGSTOP): its
// connections stay open and nothing answers.
func (s *server) Pause() error { return s.signalTree("pause", syscall.SIGSTOP) }

// Resume lets a paused server go on (SIGCONT).
func (s *server) Resume() error { return s.signalTree("resume", syscall.SIGCONT) }

func (s *server) refuse(verb string) error {
	return fmt.Errorf("servers: %s %s: %w", verb, s.title, ErrNotOwned)
}

func (s *server) signalTree(verb string, signal syscall.Signal) error {
	if !s.Owned() {
		return s.refuse(verb)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return fmt.Errorf("servers: %s %s: it does not run", verb, s.title)
	}
	if _, err := signalFamily(s.running.pid, signal); err != nil {
		return fmt.Errorf("servers: %s %s: %w", verb, s.title, err)
	}
	return nil
}

// start runs the program and returns when it serves. The caller holds mu, or
// is the only one who knows the server.
func (s *server) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := s.run(); err != nil {
		return fmt.Errorf("servers: start %s: %w", s.title, err)
	}
	err := s.awaitReady(ctx)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("servers: start %s: %w\n%s", s.title, err, s.folder.logTail())
	return errors.Join(err, s.end(context.WithoutCancel(ctx), syscall.SIGKILL))
}

// run starts the program and a goroutine that waits for it.
func (s *server) run() error {
	log, err := os.OpenFile(s.folder.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open its log: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(s.launch.program, s.launch.args...)
	cmd.Dir = s.folder.path
	cmd.Env = append(os.Environ(), s.launch.clock.environment()...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = attributes(s.launch.user)

	started, done := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(done)
		startAndWait(cmd, started)
		if cmd.Process != nil {
			s.launch.clock.forget(cmd.Process.Pid)
		}
	}()
	if err := <-started; err != nil {
		<-done
		return err
	}
	s.running = &running{pid: cmd.Process.Pid, done: done}
	return nil
}

// awaitReady asks until the server answers, the program ends or ctx does.
func (s *server) awaitReady(ctx context.Context) error {
	ticker := time.NewTicker(probePause)
	defer ticker.Stop()
	for {
		probe, cancel := context.WithTimeout(ctx, time.Second)
		err := s.launch.ready(probe, s.running.pid)
		cancel()
		select {
		case <-s.running.done: // whoever answered, it was not our program
			return errEnded
		default:
		}
		if err == nil {
			return nil
		}
		select {
		case <-s.running.done:
			return errEnded
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-ticker.C:
		}
	}
}

// end signals the program, and kills it with its children when it has not gone
// in time. The caller holds mu.
func (s *server) end(ctx context.Context, signal syscall.Signal) error {
	if s.running == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	if signal != syscall.SIGKILL {
		_, _ = signalFamily(s.running.pid, syscall.SIGCONT)
		_ = syscall.Kill(s.running.pid, signal)
		select {
		case <-s.running.done:
			s.running = nil
			return nil
		case <-ctx.Done():
		}
	}
	// Stopped first, so that no child is born while the others are killed.
	_ = syscall.Kill(s.running.pid, syscall.SIGSTOP)
	family, err := signalFamily(s.running.pid, syscall.SIGKILL)
	if err != nil {
		return fmt.Errorf("servers: kill %s: %w", s.title, err)
	}
	<-s.running.done // SIGKILL is not to be refused
	s.running = nil
	return awaitGone(context.WithoutCancel(ctx), family)
}

// awaitGone returns when none of the processes is alive. They have all been
// killed already: this only waits for the kernel.
func awaitGone(ctx context.Context, pids []int) error {
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	ticker := time.NewTicker(probePause / 10)
	defer ticker.Stop()
	for _, pid := range pids {
		for alive(pid) {
			select {
			case <-ctx.Done():
				return fmt.Errorf("servers: wait for killed process %d: %w", pid, ctx.Err())
			case <-ticker.C:
			}
		}
	}
	return nil
}

// signalFamily signals a process and all its descendants, which may have left
// its process group (PostgreSQL's do), and returns them.
func signalFamily(pid int, signal syscall.Signal) ([]int, error) {
	children, err := descendants(pid)
	if err != nil {
		return nil, fmt.Errorf("list the children of process %d: %w", pid, err)
	}
	family := append([]int{pid}, children...)
	for _, member := range family {
		if err := syscall.Kill(member, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return nil, fmt.Errorf("signal process %d: %w", member, err)
		}
	}
	return family, nil
}

// logTail returns the last lines of what the program said.
func (f *folder) logTail() []byte {
	text, err := os.ReadFile(f.logFile())
	if err != nil {
		return nil
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-20):], []byte("\n"))
}

func (f *folder) logFile() string { return filepath.Join(f.path, "log") }
