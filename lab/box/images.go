package box

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/berth-hpc/berth/lab/build"
)

// Images builds the platform's images with a release of Slurm, or those named
// only, whose inputs changed and, if the box is up, imports those that its
// containerd does not have yet and restarts what runs on an older import. It
// returns the names of the imported ones.
func (b *Box) Images(ctx context.Context, release build.Release, only ...string) (imported []string, err error) {
	if err := os.MkdirAll(b.path("log"), 0o755); err != nil {
		return nil, err
	}
	if err := b.builder.Programs(ctx); err != nil { // images hold them
		return nil, err
	}
	images, err := b.builder.Images(ctx, release, only...)
	if err != nil {
		return nil, err
	}
	layout, digests, err := b.builder.Layout(ctx, images)
	if err != nil {
		return nil, err
	}
	if _, up := b.worldPid(); !up {
		return nil, nil
	}
	have, err := b.containerdImages(ctx)
	if err != nil {
		return nil, err
	}
	wanted := map[string]string{}
	for _, image := range images {
		if d := digests[image.Name]; d != "" && have[image.Name] != d {
			wanted[image.Name] = d
			imported = append(imported, image.Name)
		}
	}
	if len(wanted) == 0 {
		return nil, nil
	}
	stored, err := b.ctr(ctx, nil, "content", "ls", "-q")
	if err != nil {
		return nil, err
	}
	blobs := map[string]bool{}
	for _, d := range strings.Fields(stored) {
		blobs[d] = true
	}
	err = b.importImages(ctx, func(w io.Writer) error {
		return build.WriteArchive(w, layout, wanted, func(digest string) bool { return blobs[digest] })
	})
	if err != nil {
		return nil, err
	}
	return imported, b.restartUsers(ctx, imported)
}

// restartUsers restarts the workloads whose pods were made from an older import
// of the images: a tag that stays the same is no change to Kubernetes. Workers
// are Slurm's; they get the new image when they next start.
func (b *Box) restartUsers(ctx context.Context, images []string) error {
	if len(images) == 0 {
		return nil
	}
	text, err := b.Kubectl(ctx, "get", "deployments,statefulsets", "--all-namespaces", "-o",
		`jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.namespace} {.spec.template.spec.containers[*].image}{"\n"}{end}`)
	if err != nil {
		return err
	}
	for _, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		if len(words) < 3 || !slices.ContainsFunc(words[2:], func(image string) bool { return slices.Contains(images, image) }) {
			continue
		}
		if _, err := b.Kubectl(ctx, "rollout", "restart", "--namespace", words[1], strings.ToLower(words[0])); err != nil {
			return err
		}
	}
	return nil
}

// scratchImages imports the pause and DNS images if they are missing or old.
func (b *Box) scratchImages(ctx context.Context) error {
	pause, err := b.builder.Pause(ctx)
	if err != nil {
		return err
	}
	dns, err := b.builder.DNS(ctx)
	if err != nil {
		return err
	}
	have, err := b.containerdImages(ctx)
	if err != nil {
		return err
	}
	for name, program := range map[string]string{pauseImage: pause, dnsImage: dns} {
		// The program's path holds the hash of what it was built from.
		mark := b.path("containerd", strings.NewReplacer("/", "_", ":", "_").Replace(name))
		if last, err := os.ReadFile(mark); err == nil && string(last) == program && have[name] != "" {
			continue
		}
		if err := b.importImages(ctx, func(w io.Writer) error { return build.ScratchImage(w, name, program) }); err != nil {
			return err
		}
		if err := os.WriteFile(mark, []byte(program), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// importImages feeds the archive that write produces to containerd.
func (b *Box) importImages(ctx context.Context, write func(io.Writer) error) error {
	r, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := write(w)
		w.CloseWithError(err)
		written <- err
	}()
	_, err := b.ctr(ctx, r, "images", "import", "-")
	r.Close() // lets the writer end if ctr did not read everything
	if wErr := <-written; wErr != nil && err == nil {
		return fmt.Errorf("box: import images: %w", wErr)
	}
	return err
}

// containerdImages lists what containerd has: name → digest.
func (b *Box) containerdImages(ctx context.Context) (map[string]string, error) {
	text, err := b.ctr(ctx, nil, "images", "ls")
	if err != nil {
		return nil, err
	}
	images := map[string]string{}
	for _, line := range strings.Split(text, "\n")[1:] {
		if fields := strings.Fields(line); len(fields) >= 3 {
			images[fields[0]] = fields[2]
		}
	}
	return images, nil
}

func (b *Box) ctr(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "ctr", append([]string{"--address", b.containerdSocket(), "--namespace", "k8s.io"}, args...)...)
	cmd.Stdin = stdin
	return output(cmd)
}

// startContainerd starts containerd and clears what an earlier box left in its
// records: pods do not outlive the box, images do.
func (b *Box) startContainerd(ctx context.Context) error {
	if err := b.start(ctx, "containerd"); err != nil {
		return err
	}
	ready := func() error {
		return Poll(ctx, time.Minute, "containerd", func(ctx context.Context) (bool, string, error) {
			_, err := b.ctr(ctx, nil, "version")
			return err == nil, fmt.Sprint(err), nil
		})
	}
	if err := ready(); err != nil {
		return err
	}
	running, err := b.ctr(ctx, nil, "tasks", "ls", "-q")
	if err != nil {
		return err
	}
	old, err := b.ctr(ctx, nil, "containers", "ls", "-q")
	if err != nil || strings.TrimSpace(running) != "" || strings.TrimSpace(old) == "" {
		return err // the box was up already, or there is nothing old
	}
	if _, err := b.ctr(ctx, nil, append([]string{"containers", "delete"}, strings.Fields(old)...)...); err != nil {
		return err
	}
	// Its CRI plugin read the old records when it started.
	if err := b.client.Stop(ctx, "containerd"); err != nil {
		return err
	}
	if err := b.start(ctx, "containerd"); err != nil {
		return err
	}
	return ready()
}
