// Package schema holds the CUE schema of a site (package site, the *.cue files beside this one) as the berth command
// carries it, and puts a copy into a lab's own repository. It evaluates nothing: package load does.
package schema

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

//go:embed *.cue
var files embed.FS

const (
	// Module is the CUE module that the schema belongs to.
	Module = "github.com/berth-hpc/berth"
	// ImportPath is the import path of the schema's package, without the package's name.
	ImportPath = Module + "/cue"
	// languageVersion is the CUE language version that the schema is tested with; `cue vet` of a lab needs it or a later one.
	languageVersion = "v0.17.0"
	// labModule names the CUE module of a lab's repository. Nobody imports it; CUE only wants a name.
	labModule = "lab.internal/sites@v0"
)

// Files returns the schema's files by name.
func Files() (map[string][]byte, error) {
	out := make(map[string][]byte)
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if out[e.Name()], err = files.ReadFile(e.Name()); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// VendorDir is where a copy of the schema lies in the repository at root. CUE resolves imports there without a registry.
func VendorDir(root string) string {
	return filepath.Join(root, "cue.mod", "pkg", filepath.FromSlash(ImportPath))
}

// Vendor puts a copy of the schema under cue.mod/pkg of the repository at root, so that `cue vet -c ./clusters` works there
// without a network, and makes cue.mod/module.cue if there is none. Files of an older schema are removed. It does nothing
// in Berth's own repository, where the schema lies in cue/.
func Vendor(root string) error {
	own, err := isOwnModule(root)
	if err != nil || own {
		return err
	}
	wanted, err := Files()
	if err != nil {
		return err
	}
	dir := VendorDir(root)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	module := filepath.Join(root, "cue.mod", "module.cue")
	if _, err := os.Stat(module); errors.Is(err, fs.ErrNotExist) {
		text := fmt.Sprintf("module: %q\nlanguage: version: %q\n", labModule, languageVersion)
		if err := renameio.WriteFile(module, []byte(text), 0o644); err != nil {
			return err
		}
	}
	for name, data := range wanted {
		if err := renameio.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	present, err := filepath.Glob(filepath.Join(dir, "*.cue"))
	if err != nil {
		return err
	}
	for _, path := range present {
		if _, ok := wanted[filepath.Base(path)]; !ok {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// Stale names the files of the repository's copy of the schema that differ from this berth's, are missing or are no longer
// part of it. It is empty where the copy is current, and in Berth's own repository.
func Stale(root string) ([]string, error) {
	own, err := isOwnModule(root)
	if err != nil || own {
		return nil, err
	}
	wanted, err := Files()
	if err != nil {
		return nil, err
	}
	var stale []string
	for name, data := range wanted {
		path := filepath.Join(VendorDir(root), name)
		if have, err := os.ReadFile(path); err != nil || !bytes.Equal(have, data) {
			stale = append(stale, path)
		}
	}
	present, err := filepath.Glob(filepath.Join(VendorDir(root), "*.cue"))
	for _, path := range present {
		if _, ok := wanted[filepath.Base(path)]; !ok {
			stale = append(stale, path)
		}
	}
	return stale, err
}

// isOwnModule reports whether root is Berth's own repository.
func isOwnModule(root string) (bool, error) {
	data, err := os.ReadFile(filepath.Join(root, "cue.mod", "module.cue"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return bytes.Contains(data, []byte(`"`+Module+`@`)), err
}
