package box

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// progress prints one line for each finished step, with the seconds it took.
type progress struct {
	mu  sync.Mutex
	out io.Writer
}

func (p *progress) step(what string, do func() error) error {
	start := time.Now()
	err := do()
	p.mu.Lock()
	defer p.mu.Unlock()
	mark := "ok"
	if err != nil {
		mark = "FAILED"
	}
	fmt.Fprintf(p.out, "%-58s %7.1f s  %s\n", what, time.Since(start).Seconds(), mark)
	return err
}

func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, format+"\n", args...)
}

// together runs the steps side by side and returns the first error, after all
// have ended.
func together(steps ...func() error) error {
	errs := make(chan error, len(steps))
	for _, s := range steps {
		go func() { errs <- s() }()
	}
	var first error
	for range steps {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}
