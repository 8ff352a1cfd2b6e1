package command

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/berth-hpc/berth/renderer/load"
)

// settle is how long files must be quiet before they are read again: editors write a file in several steps.
const settle = 100 * time.Millisecond

// watchSites calls look at once and then after each change of a file in clusters/, until ctx ends. What look returns as an error is
// printed: the next change may mend it.
func (s *settings) watchSites(ctx context.Context, look func() error) error {
	root, err := s.root()
	if err != nil {
		return err
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch the files: %w", err)
	}
	defer watcher.Close()
	folder := filepath.Join(root, "clusters")
	if err := watcher.Add(folder); err != nil {
		return fmt.Errorf("watch %s: %w", s.shown(folder), err)
	}
	s.compact = true
	quiet := time.NewTimer(0)
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-watcher.Events:
			if filepath.Ext(event.Name) == ".cue" && !event.Op.Has(fsnotify.Chmod) {
				quiet.Reset(settle)
			}
		case err := <-watcher.Errors:
			return fmt.Errorf("watch %s: %w", s.shown(folder), err)
		case <-quiet.C:
			if s.output == "table" {
				fmt.Fprintf(s.env.Out, "%s\n", time.Now().Format(time.TimeOnly))
			}
			err := look()
			var abandoned *load.AbandonedError
			if errors.As(err, &abandoned) {
				return err // no look at the next change while CUE still works on this one
			}
			if err != nil {
				fmt.Fprintln(s.env.Err, "berth: "+err.Error())
			}
		}
	}
}
