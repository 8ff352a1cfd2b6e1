// Package repository makes a lab's own repository and keeps what Berth brought into it current: the schema, the chart, the
// files that CI and SOPS read. It writes what is missing, renews what is Berth's, and leaves everything else alone.
package repository

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"sort"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/berth-hpc/berth/components/chart"
	schema "github.com/berth-hpc/berth/cue"
	"github.com/berth-hpc/berth/renderer/compile/naming"
)

// Options say what a new repository's first site is.
type Options struct {
	Site       string   // its name; a repository that has sites needs none
	URL        string   // of the repository, as Flux reaches it
	Recipients []string // age public keys
	Version    string   // of this berth, which the repository's CI is to use too
}

var siteName = regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`)

// Init makes the repository at root, or renews Berth's part of one. It returns the paths it wrote.
func Init(root string, o Options) ([]string, error) {
	if own, err := isBerth(root); err != nil {
		return nil, err
	} else if own {
		return nil, fmt.Errorf("%s: Berth's own repository, where schema and chart are the originals; name another folder", root)
	}
	if err := os.MkdirAll(filepath.Join(root, "clusters"), 0o755); err != nil {
		return nil, err
	}
	sites, err := filepath.Glob(filepath.Join(root, "clusters", "*.cue"))
	if err != nil {
		return nil, err
	}
	var written []string
	files := map[string]string{}
	if len(sites) == 0 {
		if !siteName.MatchString(o.Site) {
			return nil, fmt.Errorf("--site %q: cannot be a site's name; use small letters, digits and -, beginning with a letter", o.Site)
		}
		files["clusters/"+o.Site+".cue"] = firstSite(o)
		files["README.md"] = readme(o.Site)
		files[".github/workflows/site.yaml"] = workflow(o.Version)
		files[".gitignore"] = "# age identities open the sealed secrets; they are never committed.\n*.agekey\n"
	}
	if len(o.Recipients) > 0 {
		files[".sops.yaml"] = sopsConfig(o.Recipients)
	}
	for _, name := range sortedNames(files) {
		made, err := writeMissing(filepath.Join(root, filepath.FromSlash(name)), files[name])
		if err != nil {
			return nil, err
		}
		if made {
			written = append(written, name)
		}
	}
	stale, err := schema.Stale(root)
	if err != nil {
		return nil, err
	}
	if err := schema.Vendor(root); err != nil {
		return nil, err
	}
	if len(stale) > 0 {
		written = append(written, "cue.mod")
	}
	renewed, err := vendorChart(root)
	if err != nil {
		return nil, err
	}
	if renewed {
		written = append(written, naming.ChartPath)
	}
	return written, nil
}

// isBerth says whether root is where Berth itself is developed: its CUE module is the schema's.
func isBerth(root string) (bool, error) {
	text, err := os.ReadFile(filepath.Join(root, "cue.mod", "module.cue"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return bytes.Contains(text, []byte(`"`+schema.Module+`@`)), err
}

// ChartDrift names the first file of the repository's chart that is not this berth's, or nothing. Berth's own repository has
// the original.
func ChartDrift(root string) (string, error) {
	wanted, err := chartFiles()
	if err != nil {
		return "", err
	}
	for _, name := range sortedNames(wanted) {
		have, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil || string(have) != wanted[name] {
			return name, nil
		}
	}
	extra, err := extraChartFiles(root, wanted)
	if err != nil || len(extra) == 0 {
		return "", err
	}
	return extra[0], nil
}

// CheckChart refuses a repository whose chart is not this berth's where Flux would take the chart from it: values and chart
// would not belong together. Berth's own repository has the original.
func CheckChart(root, deliveryMode string) error {
	if deliveryMode != "helm" {
		return nil
	}
	if own, err := isBerth(root); err != nil || own {
		return err
	}
	drift, err := ChartDrift(root)
	if err != nil || drift == "" {
		return err
	}
	return fmt.Errorf("%s: not the chart of this berth, for which the values are made; berth init . renews it", drift)
}

// vendorChart puts this berth's chart into the repository, where Flux takes it from, and says whether that changed anything.
func vendorChart(root string) (bool, error) {
	drift, err := ChartDrift(root)
	if err != nil || drift == "" {
		return false, err
	}
	wanted, err := chartFiles()
	if err != nil {
		return false, err
	}
	for _, name := range sortedNames(wanted) {
		target := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return false, err
		}
		if err := renameio.WriteFile(target, []byte(wanted[name]), 0o644); err != nil {
			return false, err
		}
	}
	extra, err := extraChartFiles(root, wanted)
	for _, name := range extra {
		err = errors.Join(err, os.Remove(filepath.Join(root, filepath.FromSlash(name))))
	}
	return true, err
}

// chartFiles are the chart's files by their path in a repository.
func chartFiles() (map[string]string, error) {
	files := map[string]string{}
	err := fs.WalkDir(chart.Files, chart.Dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(chart.Files, name)
		files[path.Join(naming.ChartPath, strings.TrimPrefix(name, chart.Dir+"/"))] = string(data)
		return err
	})
	return files, err
}

// extraChartFiles are files in the repository's chart that this berth's chart does not have.
func extraChartFiles(root string, wanted map[string]string) ([]string, error) {
	var extra []string
	err := filepath.WalkDir(filepath.Join(root, filepath.FromSlash(naming.ChartPath)), func(file string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, file)
		if _, ok := wanted[filepath.ToSlash(name)]; !ok {
			extra = append(extra, filepath.ToSlash(name))
		}
		return err
	})
	return extra, err
}

// writeMissing writes a file that is not there yet.
func writeMissing(target, text string) (bool, error) {
	if _, err := os.Lstat(target); err == nil {
		return false, nil
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return false, err
	}
	return true, renameio.WriteFile(target, []byte(text), 0o644)
}

func sortedNames(m map[string]string) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
