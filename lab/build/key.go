// Package build makes what the box runs and keeps it in a cache outside of the
// repository, each thing under a key that is a hash of all that it is made
// from: it is built again when, and only when, one of those changed.
package build

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// key hashes the parts (commands, versions) and the files and directories below
// root, by name, mode and content. Files that an editor or a test left (*_test.go,
// names with a leading dot) do not count. The result is short enough for a
// directory's name.
func key(root string, paths []string, parts ...string) (string, error) {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "part %d %s\n", len(p), p)
	}
	for _, path := range paths {
		err := filepath.WalkDir(filepath.Join(root, path), func(file string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if strings.HasPrefix(d.Name(), ".") && file != filepath.Join(root, path) {
				if d.IsDir() {
					return filepath.SkipDir
				}
				return nil
			}
			if d.IsDir() || strings.HasSuffix(file, "_test.go") {
				return nil
			}
			rel, err := filepath.Rel(root, file)
			if err != nil {
				return err
			}
			return hashFile(h, rel, file)
		})
		if err != nil {
			return "", fmt.Errorf("build: key: %w", err)
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

// hashFile adds one file; a symbolic link counts by what it points to.
func hashFile(h hash.Hash, name, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	fmt.Fprintf(h, "file %s %o %d\n", name, info.Mode().Perm()&0o111, info.Size())
	_, err = io.Copy(h, f)
	return err
}
