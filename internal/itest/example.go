package itest

import (
	"context"
	"fmt"
	"runtime"
	"testing"
)

// Example runs a runnable example, which has no test of its own, with what
// stands for one. A failure is printed, so that the example's output is wrong.
func Example(run func(t testing.TB)) {
	ctx, cancel := context.WithCancel(context.Background())
	e := &example{ctx: ctx}
	done := make(chan struct{})
	go func() { // Fatal ends a goroutine, which must not be the caller's
		defer close(done)
		defer e.clean()
		defer cancel()
		run(e)
	}()
	<-done
}

type example struct {
	testing.TB // not there: the methods that aren't below may not be called
	ctx        context.Context
	cleanups   []func()
}

func (e *example) clean() {
	for i := len(e.cleanups) - 1; i >= 0; i-- {
		e.cleanups[i]()
	}
}

func (e *example) Helper()                      {}
func (e *example) Context() context.Context     { return e.ctx }
func (e *example) Cleanup(f func())             { e.cleanups = append(e.cleanups, f) }
func (e *example) Error(args ...any)            { fmt.Println(args...) }
func (e *example) Errorf(f string, args ...any) { fmt.Printf(f+"\n", args...) }
func (e *example) Fatal(args ...any)            { e.Error(args...); e.FailNow() }
func (e *example) FailNow()                     { runtime.Goexit() }
