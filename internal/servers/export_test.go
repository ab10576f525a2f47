package servers

import (
	"context"
	"os"
	"testing"
	"time"
)

var (
	Alive     = alive
	Sweep     = sweep
	NewEnough = newEnough
)

func (s *server) base() *server { return s }

// Family lists a server's processes.
func Family(handle any) []int {
	s := handle.(interface{ base() *server }).base()
	children, err := descendants(s.running.pid)
	if err != nil {
		panic(err)
	}
	return append(children, s.running.pid)
}

// Folder is a server's folder.
func Folder(handle any) string {
	return handle.(interface{ base() *server }).base().folder.path
}

// TestFolder is a folder whose age and owner a test sets.
type TestFolder struct{ *folder }

// NewFolder makes a folder.
func NewFolder(t *testing.T) TestFolder {
	t.Helper()
	f, err := newFolder("test", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.remove() })
	return TestFolder{f}
}

func (f TestFolder) Path() string { return f.path }

// Age makes the folder older.
func (f TestFolder) Age(t *testing.T, by time.Duration) {
	t.Helper()
	then := time.Now().Add(-by)
	if err := os.Chtimes(f.lock.Name(), then, then); err != nil {
		t.Fatal(err)
	}
}

// Unlock is what happens when the owner dies.
func (f TestFolder) Unlock(t *testing.T) {
	t.Helper()
	if err := f.lock.Close(); err != nil {
		t.Fatal(err)
	}
}

// Ask asks the server how it is.
func (t *Temporal) Ask(ctx context.Context) error { return t.ready(ctx, 0) }
