package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/effectonce/effectonce/internal/servers"
	"github.com/effectonce/effectonce/internal/wire"
)

// stopLimit is how long a worker may take to stop.
const stopLimit = 20 * time.Second

// fleet is the workers, each a process of its own. One that is killed is
// replaced.
type fleet struct {
	temporal    string   // the server that the workers' links lead to
	environment []string // of every worker
	fail        func(error)

	mu      sync.Mutex
	number  int
	working map[string]*process
	births  sync.WaitGroup
}

// process is one worker.
type process struct {
	name string
	cmd  *exec.Cmd
	link *wire.Proxy // its way to Temporal
	stop io.Closer   // its standard input
	log  tail
	gone chan struct{}

	mu   sync.Mutex
	over bool // it is meant to end
}

// start adds workers and returns when they work.
func (f *fleet) start(ctx context.Context, count int) error {
	faults := make([]error, count)
	var all sync.WaitGroup
	for i := range faults {
		all.Go(func() { faults[i] = f.add(ctx) })
	}
	all.Wait()
	return errors.Join(faults...)
}

func (f *fleet) add(ctx context.Context) (err error) {
	f.mu.Lock()
	f.number++
	p := &process{name: fmt.Sprintf("worker-%d", f.number), gone: make(chan struct{})}
	f.mu.Unlock()
	if p.link, err = wire.Listen(context.WithoutCancel(ctx), f.temporal, wire.Raw); err != nil {
		return err
	}
	if err := p.run(f.environment); err != nil {
		p.link.Close()
		return fmt.Errorf("start %s: %w\n%s", p.name, err, p.log.text())
	}
	f.mu.Lock()
	f.working[p.name] = p
	f.mu.Unlock()
	go func() {
		defer close(p.gone)
		err := p.cmd.Wait()
		if !p.ending() {
			f.fail(fmt.Errorf("%s ended unasked: %w\n%s", p.name, cmp.Or(err, io.EOF), p.log.text()))
		}
	}()
	return nil
}

// run starts the process and returns when it says that it works.
func (p *process) run(environment []string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	p.cmd = exec.Command(program, asWorker)
	p.cmd.Env = append(os.Environ(), environment...)
	p.cmd.Env = append(p.cmd.Env, envName+"="+p.name, servers.TemporalAddress+"="+p.link.Addr())
	p.cmd.Stderr = &p.log
	if p.stop, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if line != said {
		_ = p.cmd.Process.Kill()
		return errors.Join(errors.New("it doesn't work"), err, p.cmd.Wait())
	}
	return nil
}

// end says that the process is meant to end; false if that was said before.
func (p *process) end() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.over
	p.over = true
	return !was
}

func (p *process) ending() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over
}

func (f *fleet) get(name string) *process {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.working[name]
}

// isolate lets nothing pass any more between a worker and Temporal.
func (f *fleet) isolate(name string) {
	if p := f.get(name); p != nil {
		p.link.BlackHole()
	}
}

// kill ends a worker by SIGKILL, and returns its process's number when the
// process is gone. Another takes its place.
func (f *fleet) kill(ctx context.Context, name string) int {
	p := f.get(name)
	if p == nil || !p.end() {
		return 0
	}
	if err := p.cmd.Process.Kill(); err != nil {
		f.fail(fmt.Errorf("kill %s: %w", name, err))
		return 0
	}
	<-p.gone
	f.remove(p)
	f.births.Go(func() {
		if err := f.add(ctx); err != nil && ctx.Err() == nil {
			f.fail(err)
		}
	})
	return p.cmd.Process.Pid
}

func (f *fleet) remove(p *process) {
	p.link.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.working, p.name)
}

// stop has all workers end in good order.
func (f *fleet) stop() error {
	f.births.Wait()
	f.mu.Lock()
	var all []*process
	for _, p := range f.working {
		all = append(all, p)
	}
	f.mu.Unlock()
	for _, p := range all {
		p.end()
		_ = p.stop.Close()
	}
	var faults []error
	limit := time.After(stopLimit)
	for _, p := range all {
		select {
		case <-p.gone:
		case <-limit:
			faults = append(faults, fmt.Errorf("%s would not stop\n%s", p.name, p.log.text()))
			_ = p.cmd.Process.Kill()
			<-p.gone
		}
		f.remove(p)
	}
	return errors.Join(faults...)
}

// replace has new workers in the old ones' place, as a deploy does.
func (f *fleet) replace(ctx context.Context, count int) error {
	if err := f.stop(); err != nil {
		return err
	}
	return f.start(ctx, count)
}

// tail keeps the end of what a worker logs, to be shown if it fails.
type tail struct {
	mu   sync.Mutex
	last []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, b...)
	t.last = t.last[max(0, len(t.last)-4096):]
	return len(b), nil
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.last))
}
