package emit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/berth-hpc/berth/renderer/compile/naming"
)

// stagedSuffix marks a file that was written beside its target and is not in place yet.
const stagedSuffix = ".berth-staged"

// journalName is the file in overlays/<site>/ that says that every new file of a render is staged and only renames and removals
// are left. A render that is killed before it exists left the old tree; one that is killed after is completed by the next.
const journalName = ".berth-journal"

// Change is what writing a tree did, or would do, to one file.
type Change struct {
	Path   string `json:"path"`
	Action string `json:"action"` // create, update or remove
}

// journal lists the renames and removals of one render, as paths below the repository's root.
type journal struct {
	Rename []string `json:"rename"` // targets whose staged files are complete
	Remove []string `json:"remove"`
}

// Write puts the tree of a site into the repository at root and removes what an earlier render wrote and this one does not.
// It returns what it changed. Nothing is changed if any step before the last fails. A file in the way that render did not
// write is an error, and stays.
func Write(root, site string, tree Tree) ([]Change, error) {
	unlock, err := lock(root)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := Recover(root, site); err != nil {
		return nil, err
	}
	current, err := readGenerated(root, site)
	if err != nil {
		return nil, err
	}
	changes, err := plan(root, tree, current)
	if err != nil || len(changes) == 0 {
		return nil, err
	}
	if err := stayInside(root, changes); err != nil {
		return nil, err
	}
	if err := stage(root, site, tree, changes); err != nil {
		err = fmt.Errorf("%w; the tree is as it was", err)
		err = errors.Join(err, discardStaged(root, site))
		for _, change := range changes {
			removeEmptyFolders(root, site, path.Dir(change.Path))
		}
		return nil, err
	}
	if err := Recover(root, site); err != nil {
		return nil, fmt.Errorf("%w; the tree is half-way between the old and the new: berth render %s completes it", err, site)
	}
	return changes, nil
}

// plan compares a tree with the generated files that are there.
func plan(root string, tree, current Tree) ([]Change, error) {
	var changes []Change
	for _, name := range tree.Paths() {
		old, known := current[name]
		if known {
			if !bytes.Equal(old, tree[name]) {
				changes = append(changes, Change{name, "update"})
			}
			continue
		}
		if _, err := os.Lstat(filepath.Join(root, filepath.FromSlash(name))); err == nil {
			return nil, fmt.Errorf("%s: the file is in the way: render would write it, but it does not begin with %q; move what you need of it into a patch, then remove it", name, marker)
		}
		changes = append(changes, Change{name, "create"})
	}
	for _, name := range current.Paths() {
		if _, wanted := tree[name]; !wanted {
			changes = append(changes, Change{name, "remove"})
		}
	}
	return changes, nil
}

// stage writes every new file beside its target, then the journal.
func stage(root, site string, tree Tree, changes []Change) error {
	var j journal
	for _, change := range changes {
		if change.Action == "remove" {
			j.Remove = append(j.Remove, change.Path)
			continue
		}
		j.Rename = append(j.Rename, change.Path)
		target := filepath.Join(root, filepath.FromSlash(change.Path))
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(stagedPath(target), tree[change.Path], 0o644); err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return err
	}
	return renameio.WriteFile(journalPath(root, site), text, 0o644)
}

func stagedPath(target string) string {
	return filepath.Join(filepath.Dir(target), "."+filepath.Base(target)+stagedSuffix)
}

func journalPath(root, site string) string {
	return filepath.Join(root, filepath.FromSlash(naming.Overlay(site)), journalName)
}

// Recover brings a site's tree to a clean state after a render that was killed: it completes one that had staged everything,
// and forgets one that had not. Without such a render it does nothing.
func Recover(root, site string) error {
	text, err := os.ReadFile(journalPath(root, site))
	if errors.Is(err, fs.ErrNotExist) {
		return discardStaged(root, site)
	}
	if err != nil {
		return err
	}
	var j journal
	if err := json.Unmarshal(text, &j); err != nil {
		return fmt.Errorf("%s: unreadable journal of an interrupted render: %w; remove the file and render again", journalPath(root, site), err)
	}
	for _, name := range j.Rename {
		target := filepath.Join(root, filepath.FromSlash(name))
		// A missing staged file was renamed before the interruption.
		if err := os.Rename(stagedPath(target), target); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, name := range j.Remove {
		target := filepath.Join(root, filepath.FromSlash(name))
		if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		removeEmptyFolders(root, site, path.Dir(name))
	}
	return os.Remove(journalPath(root, site))
}

// Interrupted says whether a render of the site was killed while it put its files in place.
func Interrupted(root, site string) bool {
	_, err := os.Stat(journalPath(root, site))
	return err == nil
}

// removeEmptyFolders removes a layer's folder once its last file is gone; os.Remove keeps one that still holds something.
func removeEmptyFolders(root, site, folder string) {
	for strings.HasPrefix(folder, naming.Overlay(site)+"/") {
		if os.Remove(filepath.Join(root, filepath.FromSlash(folder))) != nil {
			return
		}
		folder = path.Dir(folder)
	}
}

// discardStaged removes what a killed render staged.
func discardStaged(root, site string) error {
	return walkSite(root, site, func(name string, entry fs.DirEntry) error {
		if strings.HasSuffix(name, stagedSuffix) && strings.HasPrefix(path.Base(name), ".") {
			return os.Remove(filepath.Join(root, filepath.FromSlash(name)))
		}
		return nil
	})
}

// readGenerated reads the site's files that render wrote.
func readGenerated(root, site string) (Tree, error) {
	current := Tree{}
	err := walkSite(root, site, func(name string, entry fs.DirEntry) error {
		if path.Ext(name) != ".yaml" || !entry.Type().IsRegular() {
			return nil
		}
		data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		if Generated(data) {
			current[name] = data
		}
		return nil
	})
	return current, err
}

// walkSite visits the files in which generated ones can be: all layers' folders, and the entry points, but neither patches nor
// secrets nor evidence.
func walkSite(root, site string, visit func(name string, entry fs.DirEntry) error) error {
	patches := naming.Overlay(site) + "/patches"
	for _, start := range []string{naming.Overlay(site), naming.Cluster(site)} {
		err := filepath.WalkDir(filepath.Join(root, filepath.FromSlash(start)), func(file string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			name, err := filepath.Rel(root, file)
			if err != nil {
				return err
			}
			name = filepath.ToSlash(name)
			if entry.IsDir() {
				if name == patches || (start == naming.Cluster(site) && name != start) {
					return fs.SkipDir
				}
				return nil
			}
			return visit(name, entry)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Sites lists the sites that have generated files in the repository, by name.
func Sites(root string) ([]string, error) {
	seen := map[string]bool{}
	for _, parent := range []string{"overlays", "clusters"} {
		entries, err := os.ReadDir(filepath.Join(root, parent))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, entry := range entries {
			if entry.IsDir() {
				seen[entry.Name()] = true
			}
		}
	}
	var sites []string
	for name := range seen {
		generated, err := readGenerated(root, name)
		if err != nil {
			return nil, err
		}
		if len(generated) > 0 {
			sites = append(sites, name)
		}
	}
	sort.Strings(sites)
	return sites, nil
}
