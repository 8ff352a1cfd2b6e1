package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// Store keeps configurations on the state volume: a directory for each, named by its hash, the link "current" that
// slurmctld and its clients read through, and the link "accepted" to the last one that slurmctld was seen to run with.
// Everything is written beside its place and then moved there, so that a crash leaves the old or the new, never half.
type Store struct {
	// Dir is /var/spool/slurm/conf.
	Dir string
}

const (
	currentLink  = "current"
	acceptedLink = "accepted"
	// keptConfigs is how many accepted configurations stay, for people who look for what changed.
	keptConfigs = 10
)

// Conf is the slurm.conf that slurmctld and clients read.
func (s *Store) Conf() string { return filepath.Join(s.Dir, currentLink, "slurm.conf") }

// Current and Accepted return the hash that a link points to; "" where there is none yet.
func (s *Store) Current() (string, error)  { return s.read(currentLink) }
func (s *Store) Accepted() (string, error) { return s.read(acceptedLink) }

func (s *Store) read(link string) (string, error) {
	target, err := os.Readlink(filepath.Join(s.Dir, link))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	hash := filepath.Base(target)
	if _, err := os.Stat(filepath.Join(s.Dir, hash, "slurm.conf")); err != nil {
		return "", fmt.Errorf("%s points to a configuration that is not whole: %w", link, err)
	}
	return hash, nil
}

// Write puts a configuration's files into their directory. A directory that is there already is whole.
func (s *Store) Write(hash string, files map[string]string) error {
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return err
	}
	place := filepath.Join(s.Dir, hash)
	if _, err := os.Stat(place); err == nil {
		return nil
	}
	temp, err := os.MkdirTemp(s.Dir, ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	// Other containers' users read it too: sackd and the clients of a shell in the pod.
	if err := os.Chmod(temp, 0o755); err != nil {
		return err
	}
	for name, text := range files {
		if err := writeSynced(filepath.Join(temp, name), text); err != nil {
			return err
		}
	}
	return os.Rename(temp, place)
}

func writeSynced(path, text string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Sync(), file.Close())
}

// Use makes slurmctld's next reading find the configuration.
func (s *Store) Use(hash string) error { return s.link(currentLink, hash) }

// Accept notes that slurmctld runs with the configuration.
func (s *Store) Accept(hash string) error {
	if err := s.link(acceptedLink, hash); err != nil {
		return err
	}
	return s.prune()
}

func (s *Store) link(name, hash string) error {
	// A relative target, because containers may mount the volume at different places.
	return renameio.Symlink(hash, filepath.Join(s.Dir, name))
}

// Files reads a configuration back.
func (s *Store) Files(hash string) (map[string]string, error) {
	entries, err := os.ReadDir(filepath.Join(s.Dir, hash))
	if err != nil {
		return nil, err
	}
	files := make(map[string]string, len(entries))
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(s.Dir, hash, entry.Name()))
		if err != nil {
			return nil, err
		}
		files[entry.Name()] = string(text)
	}
	return files, nil
}

// prune deletes the oldest configurations that no link points to.
func (s *Store) prune() error {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return err
	}
	current, _ := s.Current()
	accepted, _ := s.Accepted()
	type old struct {
		name string
		time int64
	}
	var olds []old
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || !entry.IsDir() || entry.Name() == current || entry.Name() == accepted {
			continue
		}
		olds = append(olds, old{entry.Name(), info.ModTime().UnixNano()})
	}
	for len(olds) > keptConfigs {
		oldest := 0
		for i := range olds {
			if olds[i].time < olds[oldest].time {
				oldest = i
			}
		}
		if err := os.RemoveAll(filepath.Join(s.Dir, olds[oldest].name)); err != nil {
			return err
		}
		olds = append(olds[:oldest], olds[oldest+1:]...)
	}
	return nil
}
