package placement

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/berth-hpc/berth/components/advisor/service"
)

// errFollows says that another controller keeps the promise.
var errFollows = errors.New("another placement controller leads; this one waits for its end")

// lead makes this controller the one that changes jobs: whoever has the lock beside the promise. The kernel takes it from a
// process that ends. Without a promise there is nobody to agree with.
func (c *Controller) lead(mode service.Mode) error {
	if mode != service.Live || c.Promise == "" || c.lock != nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(c.Promise), 0o700); err != nil {
		return fmt.Errorf("lead placement: %w", err)
	}
	file, err := os.OpenFile(c.Promise+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("lead placement: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return errFollows
		}
		return fmt.Errorf("lead placement: %w", err)
	}
	c.lock = file
	return nil
}

// follow lets another lead.
func (c *Controller) follow() {
	if c.lock != nil {
		_ = c.lock.Close()
		c.lock = nil
	}
}
