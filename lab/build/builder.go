package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// Builder builds from one checkout into one cache.
type Builder struct {
	// Source is the root of the checkout.
	Source string
	// Cache is the directory that results are kept in.
	Cache string
	// LogDir takes a log for each build.
	LogDir string
}

// KubernetesVersion is the release that lab/hyperkube is built from; the
// program reports it, and clients compare it with their own.
const KubernetesVersion = "v1.34.4"

// kubeRouter enforces NetworkPolicies in the lab (it is not shipped).
const kubeRouter = "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router@v2.1.0"

// Hyperkube builds Kubernetes and returns the program's path.
func (b *Builder) Hyperkube(ctx context.Context) (string, error) {
	minor := strings.Split(strings.TrimPrefix(KubernetesVersion, "v"), ".")
	var flags []string
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags,
			"-X "+pkg+".gitVersion="+KubernetesVersion,
			"-X "+pkg+".gitMajor="+minor[0], "-X "+pkg+".gitMinor="+minor[1],
			"-X "+pkg+".gitTreeState=clean")
	}
	dir, err := b.once(ctx, "hyperkube", []string{"lab/hyperkube"}, flags, func(out string) [][]string {
		return [][]string{{"go", "-C", filepath.Join(b.Source, "lab/hyperkube"), "build",
			"-ldflags", "-s -w " + strings.Join(flags, " "), "-o", out + "/hyperkube", "."}}
	})
	return filepath.Join(dir, "hyperkube"), err
}

// Flux is where the Flux controllers and their custom resource definitions are.
type Flux struct {
	SourceController, KustomizeController string
	// CRDs are directories of YAML files.
	CRDs []string
}

// Flux builds source-controller and kustomize-controller.
func (b *Builder) Flux(ctx context.Context) (Flux, error) {
	modules := []string{"github.com/fluxcd/source-controller", "github.com/fluxcd/kustomize-controller"}
	module := filepath.Join(b.Source, "lab/flux")
	dir, err := b.once(ctx, "flux", []string{"lab/flux"}, nil, func(out string) [][]string {
		commands := [][]string{append([]string{"go", "-C", module, "build", "-ldflags", "-s -w", "-o", out + "/"}, modules...)}
		for _, m := range modules {
			commands = append(commands, []string{"sh", "-c",
				`mkdir -p "$1" && cp "$(go -C "$2" list -m -f '{{.Dir}}' "$3")"/config/crd/bases/*.yaml "$1"/ && chmod u+w "$1"/*`,
				"sh", filepath.Join(out, "crds", filepath.Base(m)), module, m})
		}
		return commands
	})
	f := Flux{
		SourceController:    filepath.Join(dir, "source-controller"),
		KustomizeController: filepath.Join(dir, "kustomize-controller"),
	}
	for _, m := range modules {
		f.CRDs = append(f.CRDs, filepath.Join(dir, "crds", filepath.Base(m)))
	}
	return f, err
}

// DNS builds the cluster's name server, statically: it runs in a pod of its own.
func (b *Builder) DNS(ctx context.Context) (string, error) {
	dir, err := b.once(ctx, "dns", []string{"lab/dns"}, nil, func(out string) [][]string {
		return [][]string{{"go", "-C", filepath.Join(b.Source, "lab/dns"), "build", "-ldflags", "-s -w", "-o", out + "/dns", "."}}
	})
	return filepath.Join(dir, "dns"), err
}

// KubeRouter builds what enforces NetworkPolicies.
func (b *Builder) KubeRouter(ctx context.Context) (string, error) {
	dir, err := b.once(ctx, "kube-router", nil, []string{kubeRouter}, func(out string) [][]string {
		return [][]string{{"env", "GOBIN=" + out, "go", "install", "-ldflags", "-s -w", kubeRouter}}
	})
	return filepath.Join(dir, "kube-router"), err
}

// Pause builds the static program that holds a pod's namespaces.
func (b *Builder) Pause(ctx context.Context) (string, error) {
	dir, err := b.once(ctx, "pause", []string{"lab/pause"}, nil, func(out string) [][]string {
		return [][]string{{"go", "-C", filepath.Join(b.Source, "lab"), "build", "-ldflags", "-s -w", "-o", out + "/pause", "./pause"}}
	})
	return filepath.Join(dir, "pause"), err
}

// Programs builds every program of the checkout itself into its bin/; Go's own
// cache decides what is done again. Only berth carries the version: in the
// others it would make new images, and new pods, of every commit.
func (b *Builder) Programs(ctx context.Context) error {
	version := "unknown"
	if out, err := exec.CommandContext(ctx, "git", "-C", b.Source, "describe", "--tags", "--always", "--dirty").Output(); err == nil {
		version = strings.TrimSpace(string(out))
	}
	list := exec.CommandContext(ctx, "go", "-C", b.Source, "list", "-f", `{{if eq .Name "main"}}{{.ImportPath}}{{end}}`, "./components/...")
	list.Env = goEnv()
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("build: list the programs of %s: %w", b.Source, err)
	}
	build := func(ldflags string, packages ...string) error {
		args := []string{"go", "-C", b.Source, "build", "-ldflags", ldflags, "-o", filepath.Join(b.Source, "bin") + "/"}
		return b.command(ctx, "programs", append(args, packages...))
	}
	if err := build("-s -w", strings.Fields(string(out))...); err != nil {
		return err
	}
	return build("-s -w -X github.com/berth-hpc/berth/renderer/command.Version="+version, "./renderer/cmd/berth")
}

// once returns the directory that holds what the commands made under this key,
// running them unless it is there. Two boxes that build at once wait for each
// other.
func (b *Builder) once(ctx context.Context, name string, paths, parts []string, commands func(out string) [][]string) (string, error) {
	k, err := key(b.Source, paths, append([]string{name, runtime.Version(), runtime.GOARCH}, parts...)...)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(b.Cache, name+"-"+k)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	unlock, err := b.lock(name)
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	temp := dir + ".partial"
	if err := os.RemoveAll(temp); err != nil {
		return "", fmt.Errorf("build: %s: %w", name, err)
	}
	if err := os.MkdirAll(temp, 0o755); err != nil {
		return "", fmt.Errorf("build: %s: %w", name, err)
	}
	for _, argv := range commands(temp) {
		if err := b.command(ctx, name, argv); err != nil {
			return "", err
		}
	}
	if err := os.Rename(temp, dir); err != nil {
		return "", fmt.Errorf("build: %s: %w", name, err)
	}
	return dir, nil
}

// command runs argv and keeps its output in <name>.log; an error ends with the
// last lines of it.
func (b *Builder) command(ctx context.Context, name string, argv []string) error {
	if err := os.MkdirAll(b.LogDir, 0o755); err != nil {
		return err
	}
	path := filepath.Join(b.LogDir, "build-"+name+".log")
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	fmt.Fprintf(log, "+ %s\n", strings.Join(argv, " "))
	start, _ := log.Seek(0, 2)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = goEnv()
	cmd.Dir = b.Source
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build %s: %w; the end of %s:\n%s", name, err, path, tail(path, start))
	}
	return nil
}

// goEnv is the environment of builds: static programs, the same on every
// machine, and never another toolchain than the one that runs.
func goEnv() []string {
	env := append(os.Environ(), "CGO_ENABLED=0", "GOTOOLCHAIN=local")
	if os.Getenv("GOFLAGS") == "" {
		env = append(env, "GOFLAGS=-buildvcs=false")
	}
	return env
}

func tail(path string, from int64) string {
	text, err := os.ReadFile(path)
	if err != nil || int64(len(text)) < from {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(text[from:])), "\n")
	if len(lines) > 15 {
		lines = lines[len(lines)-15:]
	}
	return "  " + strings.Join(lines, "\n  ")
}

// lock holds the build of name for this process.
func (b *Builder) lock(name string) (unlock func(), err error) {
	if err := os.MkdirAll(b.Cache, 0o755); err != nil {
		return nil, fmt.Errorf("build: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(b.Cache, name+".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("build: %w", err)
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("build: lock %s: %w", f.Name(), err)
	}
	return func() { f.Close() }, nil
}
