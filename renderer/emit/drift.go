package emit

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/pmezard/go-difflib/difflib"

	"github.com/berth-hpc/berth/renderer/compile/naming"
)

// Drift is one file that is not what render would write.
type Drift struct {
	Path    string `json:"path"`
	Why     string `json:"why"`  // what is wrong and where the change belongs
	Unified string `json:"diff"` // from the file to what render would write
}

// Check compares the repository at root with the tree, changes nothing, and needs no key. Files that render did not write are
// none of its business, except where it would write one itself.
func Check(root, site string, tree Tree) ([]Drift, error) {
	current, err := readGenerated(root, site)
	if err != nil {
		return nil, err
	}
	var drifts []Drift
	add := func(name string, have, want []byte, why string) error {
		text, err := unified(name, have, want)
		drifts = append(drifts, Drift{Path: name, Why: why, Unified: text})
		return err
	}
	for _, name := range tree.Paths() {
		have, known := current[name]
		if !known {
			if have, err = os.ReadFile(filepath.Join(root, filepath.FromSlash(name))); err != nil {
				have = nil
			}
		}
		if bytes.Equal(have, tree[name]) {
			continue
		}
		why := "the file was edited by hand, or the site was changed without a render; " + belongs(site, name)
		if have == nil {
			why = "the file is missing; run berth render " + site
		}
		if err := add(name, have, tree[name], why); err != nil {
			return nil, err
		}
	}
	for _, name := range current.Paths() {
		if _, wanted := tree[name]; !wanted {
			if err := add(name, current[name], nil, "render no longer makes this file; run berth render "+site); err != nil {
				return nil, err
			}
		}
	}
	if Interrupted(root, site) {
		drifts = append(drifts, Drift{Path: naming.Overlay(site), Why: "a render was interrupted while it put its files in place; run berth render " + site})
	}
	return drifts, nil
}

// Differs says whether writing the tree would change anything.
func Differs(root, site string, tree Tree) (bool, error) {
	current, err := readGenerated(root, site)
	if err != nil || len(current) != len(tree) {
		return true, err
	}
	for name, text := range tree {
		if !bytes.Equal(current[name], text) {
			return true, nil
		}
	}
	return false, nil
}

// belongs says where a hand-made change of a generated file should be instead.
func belongs(site, name string) string {
	rest, inOverlay := strings.CutPrefix(name, naming.Overlay(site)+"/")
	layer, _, inLayer := strings.Cut(rest, "/")
	if !inOverlay || !inLayer {
		return fmt.Sprintf("a change belongs in the site %s in clusters/; then run berth render %s", site, site)
	}
	return fmt.Sprintf("a change belongs in the site %s in clusters/, or as a patch in %s/; then run berth render %s", site, naming.Patches(site, layer), site)
}

func unified(name string, have, want []byte) (string, error) {
	from, to := "a/"+name, "b/"+name
	if have == nil {
		from = "/dev/null"
	}
	if want == nil {
		to = "/dev/null"
	}
	return difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: difflib.SplitLines(string(have)), B: difflib.SplitLines(string(want)), FromFile: from, ToFile: to, Context: 3,
	})
}
