package build

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
)

// The name and tag that the box's site gives its images (clusters/lab-box.cue).
const (
	ImageRegistry = "localhost/berth"
	ImageTag      = "box"
)

// labImages has, by image, what the box adds to it.
const labImages = "lab/images"

// baseImage is what the Dockerfiles start from. There is no registry here, so
// it is made from Debian's packages.
const (
	baseImage = "debian:trixie-slim"
	baseSuite = "trixie"
)

// Image is an image of the platform as built here.
type Image struct {
	// Name is what pods call it, with registry and tag.
	Name string
	// Key is the hash of what it was made from.
	Key string
	// Built tells whether this call built it.
	Built bool
}

// Base makes the base image in buildah's storage unless it is there.
func (b *Builder) Base(ctx context.Context) error {
	if exec.CommandContext(ctx, "buildah", "inspect", "--type", "image", "localhost/"+baseImage).Run() == nil {
		return nil
	}
	unlock, err := b.lock("base-image")
	if err != nil {
		return err
	}
	defer unlock()
	dir, err := os.MkdirTemp(b.Cache, "base-*")
	if err != nil {
		return fmt.Errorf("build: base image: %w", err)
	}
	defer os.RemoveAll(dir)
	file := "FROM scratch\nADD base.tar /\nCMD [\"bash\"]\n"
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(file), 0o644); err != nil {
		return fmt.Errorf("build: base image: %w", err)
	}
	for _, argv := range [][]string{
		{"mmdebstrap", "--variant=minbase", baseSuite, filepath.Join(dir, "base.tar")},
		{"buildah", "bud", "--isolation", "chroot", "--pull-never", "-t", baseImage, dir},
	} {
		if err := b.command(ctx, "base-image", argv); err != nil {
			return err
		}
	}
	return nil
}

// Images builds those of the named images (all, if none is named) whose inputs
// changed since they were last built, and returns them. The programs that they
// hold must be in bin/.
func (b *Builder) Images(ctx context.Context, only ...string) ([]Image, error) {
	names, err := b.imageNames()
	if err != nil || len(names) == 0 {
		return nil, err
	}
	for _, n := range only {
		if !slices.Contains(names, n) {
			return nil, fmt.Errorf("build: no image named %q; there are: %s", n, strings.Join(names, ", "))
		}
	}
	if len(only) > 0 {
		names = only
	}
	if err := b.Base(ctx); err != nil {
		return nil, err
	}
	unlock, err := b.lock("images")
	if err != nil {
		return nil, err
	}
	defer unlock()
	marks := filepath.Join(b.Cache, "images")
	if err := os.MkdirAll(marks, 0o755); err != nil {
		return nil, fmt.Errorf("build: images: %w", err)
	}
	var all []Image
	var stale []string
	for _, name := range names {
		k, err := b.imageKey(name)
		if err != nil {
			return nil, err
		}
		image := Image{Name: ImageRegistry + "/" + name + ":" + ImageTag, Key: k}
		if last, err := os.ReadFile(filepath.Join(marks, name)); err != nil || string(last) != k || !inStorage(ctx, image.Name) {
			image.Built = true
			stale = append(stale, name)
		}
		all = append(all, image)
	}
	if len(stale) > 0 {
		argv := append([]string{filepath.Join(b.Source, "images/build.sh"), "-b", "buildah",
			"-r", ImageRegistry, "-t", ImageTag, "-B", baseImage}, stale...)
		if err := b.command(ctx, "images", argv); err != nil {
			return nil, err
		}
	}
	for _, name := range stale {
		if err := b.layer(ctx, name); err != nil {
			return nil, err
		}
	}
	for i, name := range names {
		if all[i].Built {
			if err := os.WriteFile(filepath.Join(marks, name), []byte(all[i].Key), 0o644); err != nil {
				return nil, fmt.Errorf("build: images: %w", err)
			}
		}
	}
	return all, nil
}

// layer adds to an image what the box alone has in it, from lab/images/<name>.
func (b *Builder) layer(ctx context.Context, name string) error {
	file := filepath.Join(labImages, name, "Dockerfile")
	if _, err := os.Stat(filepath.Join(b.Source, file)); err != nil {
		return nil
	}
	image := ImageRegistry + "/" + name + ":" + ImageTag
	// --layers keeps what does not begin from the image from one build to the next.
	return b.command(ctx, "images", []string{"buildah", "bud", "--quiet", "--isolation", "chroot", "--pull-never", "--layers",
		"--build-arg", "BASE=" + image, "-t", image, "-f", file, "."})
}

func inStorage(ctx context.Context, image string) bool {
	return exec.CommandContext(ctx, "buildah", "inspect", "--type", "image", image).Run() == nil
}

// imageNames are the directories of images/ with a Dockerfile, without the
// common base, which runs in no pod.
func (b *Builder) imageNames() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(b.Source, "images", "*", "Dockerfile"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, f := range files {
		if name := filepath.Base(filepath.Dir(f)); name != "slurm" {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names, nil
}

// imageKey hashes the image's directory, the box's own layer, the common base's
// directory, the build script, and the programs that the Dockerfiles copy out of
// bin/.
func (b *Builder) imageKey(name string) (string, error) {
	file, err := os.ReadFile(filepath.Join(b.Source, "images", name, "Dockerfile"))
	if err != nil {
		return "", fmt.Errorf("build: image %s: %w", name, err)
	}
	paths := []string{"images/" + name, "images/build.sh"}
	if strings.Contains(string(file), "/slurm:") {
		paths = append(paths, "images/slurm")
	}
	sources := copied(string(file))
	if own, err := os.ReadFile(filepath.Join(b.Source, labImages, name, "Dockerfile")); err == nil {
		paths = append(paths, labImages+"/"+name)
		sources = append(sources, copied(string(own))...)
	}
	for _, p := range sources {
		if _, err := os.Stat(filepath.Join(b.Source, p)); err != nil {
			return "", fmt.Errorf("build: image %s: its Dockerfile copies %s, which is not there: %w", name, p, err)
		}
		paths = append(paths, p)
	}
	return key(b.Source, paths, name, baseImage)
}

var continued = regexp.MustCompile(`\\\s*\n`)

// copied lists what the Dockerfile's COPY and ADD instructions take from the
// build context (not those that take from another stage).
func copied(dockerfile string) []string {
	var sources []string
	for _, line := range strings.Split(continued.ReplaceAllString(dockerfile, " "), "\n") {
		words := strings.Fields(line)
		if len(words) < 3 || (words[0] != "COPY" && words[0] != "ADD") {
			continue
		}
		words = words[1:]
		stage := false
		for len(words) > 0 && strings.HasPrefix(words[0], "--") {
			stage = stage || strings.HasPrefix(words[0], "--from")
			words = words[1:]
		}
		if !stage && len(words) > 1 {
			sources = append(sources, words[:len(words)-1]...)
		}
	}
	return sources
}

// Layout copies the images into an OCI layout in the cache, uncompressed, so
// that layers which they share are there once. It returns for each image the
// digest of its manifest.
func (b *Builder) Layout(ctx context.Context, images []Image) (dir string, digests map[string]string, err error) {
	unlock, err := b.lock("images")
	if err != nil {
		return "", nil, err
	}
	defer unlock()
	dir = filepath.Join(b.Cache, "images", "layout")
	digests, err = layoutDigests(dir)
	if err != nil {
		return "", nil, err
	}
	for _, image := range images {
		mark := filepath.Join(b.Cache, "images", filepath.Base(image.Name)+".layout")
		last, err := os.ReadFile(mark)
		if err == nil && string(last) == image.Key && digests[image.Name] != "" {
			continue
		}
		if err := b.command(ctx, "images", []string{"buildah", "push", "--quiet", "--disable-compression", image.Name, "oci:" + dir + ":" + image.Name}); err != nil {
			return "", nil, err
		}
		if err := os.WriteFile(mark, []byte(image.Key), 0o644); err != nil {
			return "", nil, fmt.Errorf("build: images: %w", err)
		}
	}
	if digests, err = layoutDigests(dir); err != nil {
		return "", nil, err
	}
	return dir, digests, pruneLayout(dir, digests)
}

// pruneLayout removes the blobs that no image of the layout uses any more.
func pruneLayout(dir string, digests map[string]string) error {
	used := map[string]bool{}
	for name, digest := range digests {
		m, err := readManifest(dir, digest)
		if err != nil {
			return fmt.Errorf("build: image %s: %w", name, err)
		}
		used[digest], used[m.Config.Digest] = true, true
		for _, l := range m.Layers {
			used[l.Digest] = true
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "blobs", "sha256", "*"))
	if err != nil {
		return err
	}
	for _, f := range files {
		if !used["sha256:"+filepath.Base(f)] {
			if err := os.Remove(f); err != nil {
				return fmt.Errorf("build: images: %w", err)
			}
		}
	}
	return nil
}

// layoutDigests reads the layout's index: image name → manifest digest.
func layoutDigests(dir string) (map[string]string, error) {
	digests := map[string]string{}
	text, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if os.IsNotExist(err) {
		return digests, nil
	}
	if err != nil {
		return nil, fmt.Errorf("build: images: %w", err)
	}
	var index struct {
		Manifests []struct {
			Digest      string            `json:"digest"`
			Annotations map[string]string `json:"annotations"`
		} `json:"manifests"`
	}
	if err := json.Unmarshal(text, &index); err != nil {
		return nil, fmt.Errorf("build: %s/index.json: %w", dir, err)
	}
	for _, m := range index.Manifests {
		if name := m.Annotations["org.opencontainers.image.ref.name"]; name != "" {
			digests[name] = m.Digest
		}
	}
	return digests, nil
}
