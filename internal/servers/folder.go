package servers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const folderPrefix = "effectonce-"

// folder is a server's own folder. Its owner holds a lock on a file in it, so
// that a folder whose owner died without cleaning up can be told and removed.
type folder struct {
	path string
	lock *os.File
	last func(path string) // run before the folder is removed
}

// newFolder makes a folder that user may write to (nil: the caller).
func newFolder(name string, user *syscall.Credential) (*folder, error) {
	sweep()
	path, err := os.MkdirTemp("", folderPrefix+name+"-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err == nil && user != nil {
		err = os.Chown(path, int(user.Uid), int(user.Gid))
	}
	f := &folder{path: path, lock: lock}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("prepare folder %s: %w", path, err), f.remove())
	}
	return f, nil
}

func (f *folder) remove() error {
	if f.last != nil {
		f.last(f.path)
	}
	err := os.RemoveAll(f.path)
	if f.lock != nil {
		err = errors.Join(err, f.lock.Close())
	}
	return err
}

// sweep removes the folders of programs that died before they could, as well
// as it can. Young folders are spared: their owner may not hold the lock yet.
func sweep() {
	locks, _ := filepath.Glob(filepath.Join(os.TempDir(), folderPrefix+"*", "lock"))
	for _, path := range locks {
		if info, err := os.Stat(path); err != nil || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		lock, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			dead := filepath.Dir(path)
			removeSharedMemory(dead)
			_ = os.RemoveAll(dead)
		}
		_ = lock.Close()
	}
}
