package emit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// lockPatience is how long a render waits for another one of the same repository; a render takes a second or two.
const lockPatience = 30 * time.Second

// lock keeps other renders of the repository out until unlock is called. A process that dies lets go of it. On a file system
// without locks there is none.
func lock(root string) (unlock func(), err error) {
	folder, err := os.Open(root)
	if err != nil {
		return nil, err
	}
	for until := time.Now().Add(lockPatience); ; time.Sleep(20 * time.Millisecond) {
		err := syscall.Flock(int(folder.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.ENOLCK):
			return func() { folder.Close() }, nil
		case !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR):
			folder.Close()
			return nil, fmt.Errorf("lock %s: %w", root, err)
		case time.Now().After(until):
			folder.Close()
			return nil, fmt.Errorf("%s: another berth has been writing here for %v; nothing was changed", root, lockPatience)
		}
	}
}

// stayInside refuses to write through a symbolic link: what lies behind it is not render's, and Flux would not have it.
func stayInside(root string, changes []Change) error {
	seen := map[string]bool{}
	for _, change := range changes {
		parts := strings.Split(change.Path, "/")
		for n := 1; n < len(parts); n++ {
			folder := strings.Join(parts[:n], "/")
			if seen[folder] {
				continue
			}
			seen[folder] = true
			info, err := os.Lstat(filepath.Join(root, filepath.FromSlash(folder)))
			if errors.Is(err, fs.ErrNotExist) {
				break
			}
			if err != nil {
				return err
			}
			if info.Mode()&fs.ModeSymlink != 0 {
				return fmt.Errorf("%s: a symbolic link; render writes only into folders of the repository itself. Replace it by a folder", folder)
			}
		}
	}
	return nil
}

// leadsOut says whether a file of the repository is a link to something outside of it.
func leadsOut(root, file string) (bool, error) {
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		return false, err
	}
	if root, err = filepath.EvalSymlinks(root); err != nil {
		return false, err
	}
	inside, err := filepath.Rel(root, real)
	return err != nil || inside == ".." || strings.HasPrefix(inside, ".."+string(filepath.Separator)), nil
}
