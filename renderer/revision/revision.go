// Package revision reads a site as a Git revision has it, without touching the working tree: it asks the git command for the
// revision's files, puts them into a folder that goes away, and reads that.
package revision

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-hpc/berth/components/chart"
	"github.com/berth-hpc/berth/renderer/compile/naming"
	"github.com/berth-hpc/berth/renderer/diff"
	"github.com/berth-hpc/berth/renderer/emit"
	"github.com/berth-hpc/berth/renderer/load"
)

// parts are the folders of a repository that a site depends on.
var parts = []string{"cue", "cue.mod", "clusters", "overlays", "components/chart"}

// Folder is a revision's files in a folder of their own.
type Folder struct {
	Revision string // as it was named
	root     string
}

// Open reads the revision of the repository at root. Close removes the folder.
func Open(ctx context.Context, root, revision string) (*Folder, error) {
	prefix, err := git(ctx, root, "rev-parse", "--show-prefix")
	if err != nil {
		return nil, err
	}
	commit, err := git(ctx, root, "rev-parse", "--verify", "--quiet", "--end-of-options", revision+"^{commit}")
	if err != nil {
		return nil, fmt.Errorf("%s: no such revision; git log --oneline lists them", revision)
	}
	tree := strings.TrimSpace(string(commit)) + ":" + strings.TrimSpace(string(prefix))
	listed, err := git(ctx, root, "ls-tree", "--name-only", "-r", "-d", tree)
	if err != nil {
		return nil, err
	}
	folders := strings.Split(strings.TrimSpace(string(listed)), "\n")
	present := slices.DeleteFunc(slices.Clone(parts), func(part string) bool { return !slices.Contains(folders, part) })
	folder, err := os.MkdirTemp("", "berth-revision-")
	if err != nil {
		return nil, err
	}
	opened := &Folder{Revision: revision, root: folder}
	if len(present) == 0 {
		return opened, nil
	}
	archive, err := git(ctx, root, append([]string{"archive", "--format=tar", tree}, present...)...)
	if err == nil {
		err = unpack(archive, folder)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read revision %s: %w", revision, err), opened.Close())
	}
	return opened, nil
}

// Close removes the folder.
func (f *Folder) Close() error { return os.RemoveAll(f.root) }

// Changed names the files below the repository's root that differ between a revision and another, or the working tree ("").
func Changed(ctx context.Context, root, from, to string) ([]string, error) {
	args := []string{"diff", "--name-only", "--relative", from}
	if to != "" {
		args = append(args, to)
	}
	out, err := git(ctx, root, append(args, "--")...)
	return strings.Fields(string(out)), err
}

// Sites are the names of the sites that the revision has, by their rendered trees.
func (f *Folder) Sites() ([]string, error) { return emit.Sites(f.root) }

// State is the site as the revision has it: what Flux sees is the committed tree with the committed chart, and the site's
// value is evaluated with the committed schema. A site that the revision does not have, or whose value it can no longer say,
// leaves that part of the state empty.
func (f *Folder) State(site string) (diff.State, error) {
	state := diff.State{Name: f.Revision}
	var files fs.FS = chart.Files
	dir := chart.Dir
	if _, err := os.Stat(filepath.Join(f.root, filepath.FromSlash(naming.ChartPath))); err == nil {
		files, dir = os.DirFS(f.root), naming.ChartPath
	}
	var err error
	if state.Layers, state.Entry, err = emit.Committed(f.root, site, files, dir); err != nil {
		return state, fmt.Errorf("%s: %s", f.Revision, strings.ReplaceAll(err.Error(), f.root+"/", ""))
	}
	if loaded, err := load.Load(filepath.Join(f.root, "clusters"), site); err == nil {
		state.Site = loaded[0]
	}
	return state, nil
}

// git runs the git command in the repository. Its own words are the error's.
func git(ctx context.Context, root string, args ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...)
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	if err := command.Run(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return nil, errors.New("no git command: revisions are read with it")
		}
		words := strings.TrimSpace(errs.String())
		if words == "" {
			words = err.Error()
		}
		return nil, fmt.Errorf("git %s: %s", args[0], words)
	}
	return out.Bytes(), nil
}

// unpack writes an archive's files below a folder. Links are left out: Flux would not follow those that lead outside.
func unpack(archive []byte, folder string) error {
	reader := tar.NewReader(bytes.NewReader(archive))
	for {
		head, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !filepath.IsLocal(head.Name) {
			continue
		}
		target := filepath.Join(folder, head.Name)
		switch head.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(target, 0o755)
		case tar.TypeReg:
			var text []byte
			if text, err = io.ReadAll(reader); err == nil {
				err = errors.Join(os.MkdirAll(filepath.Dir(target), 0o755), os.WriteFile(target, text, 0o644))
			}
		}
		if err != nil {
			return err
		}
	}
}
