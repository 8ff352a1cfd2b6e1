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

// ImageRegistry is where the box's site says that its images come from (cue/box.cue).
const ImageRegistry = "localhost/berth"

// A Release is a release of Slurm that the box can run, and Debian's suite that serves it.
type Release struct{ Slurm, Suite string }

// Releases are those that a site can name (slurm.version), the default first.
var Releases = []Release{{"24.11", "trixie"}, {"26.05", "forky"}}

// ReleaseOf is the release with the version, such as 24.11.
func ReleaseOf(slurm string) (Release, error) {
	for _, r := range Releases {
		if r.Slurm == slurm {
			return r, nil
		}
	}
	return Release{}, fmt.Errorf("build: no images of Slurm %q; the box has %s and %s", slurm, Releases[0].Slurm, Releases[1].Slurm)
}

// tag is the tag that the box's site gives the release's images.
func (r Release) tag() string {
	if r == Releases[0] {
		return "box"
	}
	return "box-" + r.Slurm
}

// Image is what pods call the release's image of a name in images/.
func (r Release) Image(name string) string { return ImageRegistry + "/" + name + ":" + r.tag() }

// base is the image that the Dockerfiles start from. There is no registry here, so it is made from Debian's packages.
func (r Release) base() string { return "debian:" + r.Suite + "-slim" }

// slurmImage tells whether the image is built on the common base with Slurm. The others are the same for every release: what holds
// the database must not go to another release of it on the way.
func slurmImage(name string) bool {
	return strings.HasPrefix(name, "slurm-") && name != "slurm-database"
}

// labImages has, by image, what the box adds to it.
const labImages = "lab/images"

// Image is an image of the platform as built here.
type Image struct {
	// Name is what pods call it, with registry and tag.
	Name string
	// Key is the hash of what it was made from.
	Key string
	// Built tells whether this call built it.
	Built bool
}

// Base makes the release's base image in buildah's storage unless it is there.
func (b *Builder) Base(ctx context.Context, r Release) error {
	baseImage := r.base()
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
	bootstrap := []string{"mmdebstrap", "--variant=minbase"}
	if r != Releases[0] {
		// A suite that is not released yet says of itself every week that it is still the newest, and a mirror may be behind; what it
		// serves is signed all the same. apt in the image goes by the option too.
		bootstrap = append(bootstrap, `--aptopt=Acquire::Check-Valid-Until "false"`)
	}
	for _, argv := range [][]string{
		append(bootstrap, r.Suite, filepath.Join(dir, "base.tar")),
		{"buildah", "bud", "--isolation", "chroot", "--pull-never", "-t", baseImage, dir},
	} {
		if err := b.command(ctx, "base-image", argv); err != nil {
			return err
		}
	}
	return nil
}

// Images builds those of the release's named images (all, if none is named)
// whose inputs changed since they were last built, and returns them. The
// programs that they hold must be in bin/.
func (b *Builder) Images(ctx context.Context, r Release, only ...string) ([]Image, error) {
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
	for _, base := range slices.Compact([]Release{Releases[0], r}) { // what is no Slurm's is built on the first
		if err := b.Base(ctx, base); err != nil {
			return nil, err
		}
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
		k, err := b.imageKey(r, name)
		if err != nil {
			return nil, err
		}
		image := Image{Name: r.Image(name), Key: k}
		if last, err := os.ReadFile(filepath.Join(marks, r.mark(name))); err != nil || string(last) != k || !inStorage(ctx, image.Name) {
			image.Built = true
			stale = append(stale, name)
		}
		all = append(all, image)
	}
	for _, base := range slices.Compact([]Release{Releases[0], r}) {
		argv := []string{filepath.Join(b.Source, "images/build.sh"), "-b", "buildah", "-r", ImageRegistry, "-t", r.tag(), "-s", base.Slurm, "-B", base.base()}
		options := len(argv)
		for _, name := range stale {
			if r == Releases[0] || slurmImage(name) == (base == r) {
				argv = append(argv, name)
			}
		}
		if len(argv) == options {
			continue
		}
		if err := b.command(ctx, "images", argv); err != nil {
			return nil, err
		}
	}
	for _, name := range stale {
		if err := b.layer(ctx, r, name); err != nil {
			return nil, err
		}
	}
	for i, name := range names {
		if all[i].Built {
			if err := os.WriteFile(filepath.Join(marks, r.mark(name)), []byte(all[i].Key), 0o644); err != nil {
				return nil, fmt.Errorf("build: images: %w", err)
			}
		}
	}
	return all, nil
}

// mark is the name of the file in the cache that has the key of the image as last built.
func (r Release) mark(name string) string {
	if r == Releases[0] {
		return name
	}
	return name + ":" + r.tag()
}

// layer adds to an image what the box alone has in it, from lab/images/<name>.
func (b *Builder) layer(ctx context.Context, r Release, name string) error {
	file := filepath.Join(labImages, name, "Dockerfile")
	if _, err := os.Stat(filepath.Join(b.Source, file)); err != nil {
		return nil
	}
	image := r.Image(name)
	// --layers keeps what does not begin from the image from one build to the next.
	return b.command(ctx, "images", []string{"buildah", "bud", "--quiet", "--isolation", "chroot", "--pull-never", "--layers",
		"--build-arg", "BASE=" + image, "--build-arg", "DEBIAN=" + r.base(), "-t", image, "-f", file, "."})
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
func (b *Builder) imageKey(r Release, name string) (string, error) {
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
	return key(b.Source, paths, name, r.Slurm, r.base())
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
