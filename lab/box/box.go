// Package box is the lab in a box: a real Kubernetes node, real Flux, a git
// server and the platform on one machine, in namespaces of their own that have
// no way out. Tests use it as a library; the command is lab/cmd/box.
package box

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/berth-hpc/berth/lab/build"
	"github.com/berth-hpc/berth/lab/egress"
	"github.com/berth-hpc/berth/lab/supervisor"
)

// Addresses of the box. They are inside its own network namespace and mean
// nothing on the machine around it; clusters/lab-box.cue declares the same.
const (
	NodeName    = "box"
	NodeIP      = "10.245.0.1"
	PodCIDR     = "10.244.0.0/16"
	ServiceCIDR = "10.96.0.0/16"
	serviceIP   = "10.96.0.1" // the service `kubernetes`: first of ServiceCIDR
	dnsIP       = "10.96.0.10"
	apiPort     = "6443"
	gitPort     = "9418"
	domain      = "cluster.local"
	podBridge   = "pods0"
	// StorageDir is where the box's site keeps its volumes.
	StorageDir = "/var/lib/berth-lab/storage"
	// deviceDir holds the character devices that stand for cards.
	deviceDir = "/run/berth-lab/gpu"
)

// Config says where a box lives. The zero value of each field is its default.
type Config struct {
	// Dir is the box's directory ($BERTH_LAB_DIR, else /var/lib/berth-lab).
	Dir string
	// Source is the root of the checkout (default: the one around the working
	// directory).
	Source string
	// Cache keeps what was built ($XDG_CACHE_HOME or ~/.cache, + /berth-lab).
	Cache string
	// APIPort and GitPort are the ports on the machine's 127.0.0.1 that lead to
	// the API server and the git server ($BERTH_LAB_API_PORT, 6443, and
	// $BERTH_LAB_GIT_PORT, 9418).
	APIPort, GitPort string
	// Site is the site that the box runs (lab-box).
	Site string
	// Cards is how many fake cards the node has (8).
	Cards int
	// Out takes the progress (default: nowhere).
	Out io.Writer
}

// Box is a handle on the box of a Config, up or not.
type Box struct {
	Config
	builder *build.Builder
	client  *supervisor.Client
	inside  egress.Inside
}

// Open completes the configuration and returns the handle. It starts nothing.
func Open(c Config) (*Box, error) {
	var err error
	c.Dir = firstOf(c.Dir, os.Getenv("BERTH_LAB_DIR"), "/var/lib/berth-lab")
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return nil, err
	}
	if c.Source == "" {
		if c.Source, err = findSource(); err != nil {
			return nil, err
		}
	}
	if c.Cache == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("box: no place for the cache: %w (set XDG_CACHE_HOME)", err)
		}
		c.Cache = filepath.Join(base, "berth-lab")
	}
	c.APIPort = firstOf(c.APIPort, os.Getenv("BERTH_LAB_API_PORT"), apiPort)
	c.GitPort = firstOf(c.GitPort, os.Getenv("BERTH_LAB_GIT_PORT"), gitPort)
	c.Site = firstOf(c.Site, "lab-box")
	if c.Cards == 0 {
		c.Cards = 8
	}
	if c.Out == nil {
		c.Out = io.Discard
	}
	b := &Box{Config: c, inside: egress.Inside{Node: NodeIP, Pods: PodCIDR, Services: ServiceCIDR}}
	b.builder = &build.Builder{Source: c.Source, Cache: c.Cache, LogDir: b.path("log")}
	b.client = supervisor.NewClient(b.path("run", "box.sock"))
	return b, nil
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// findSource is the nearest directory upwards whose go.mod is this project's.
func findSource() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for d := dir; ; d = filepath.Dir(d) {
		text, err := os.ReadFile(filepath.Join(d, "go.mod"))
		if err == nil && strings.HasPrefix(string(text), "module github.com/berth-hpc/berth\n") {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("box: %s is not in a checkout of Berth; run it there or name the checkout with --source", dir)
		}
	}
}

// path is a path in the box's directory.
func (b *Box) path(elem ...string) string {
	return filepath.Join(append([]string{b.Dir}, elem...)...)
}

// Kubeconfig is the path of the administrator's kubeconfig.
func (b *Box) Kubeconfig() string { return b.path("kubeconfig") }

// Clone is the path of the user's clone of the site's repository.
func (b *Box) Clone() string { return b.path("clone") }

// AgeKeyFile is the path of the key that opens the site's secrets.
func (b *Box) AgeKeyFile() string { return b.path("age.key") }

// GitURL is the site's repository as the user's clone sees it, on the machine.
func (b *Box) GitURL() string { return "http://127.0.0.1:" + b.GitPort + "/lab.git" }

// Env is what a shell needs to look around, as NAME=value.
func (b *Box) Env() []string {
	return []string{
		"KUBECONFIG=" + b.Kubeconfig(),
		"BERTH_LAB_DIR=" + b.Dir,
		"BERTH_CLONE=" + b.Clone(),
		"SOPS_AGE_KEY_FILE=" + b.AgeKeyFile(),
		"PATH=" + b.path("bin") + ":" + filepath.Join(b.Source, "bin") + ":" + os.Getenv("PATH"),
	}
}

// Kubectl runs kubectl as the administrator and returns its output; an error
// carries what kubectl said.
func (b *Box) Kubectl(ctx context.Context, args ...string) (string, error) {
	return b.kubectl(ctx, "", args...)
}

// Apply applies manifests (YAML or JSON) server-side.
func (b *Box) Apply(ctx context.Context, manifests string) error {
	_, err := b.kubectl(ctx, manifests, "apply", "--server-side", "--validate=false", "--force-conflicts", "--field-manager=berth-lab", "-f", "-")
	return err
}

func (b *Box) kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, b.path("bin", "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+b.Kubeconfig())
	cmd.Stdin = strings.NewReader(stdin)
	return output(cmd)
}

// Enter runs a command inside the box's namespaces, as on its node: it reaches
// pods and services by address.
func (b *Box) Enter(ctx context.Context, argv ...string) (string, error) {
	cmd, err := b.EnterCommand(ctx, argv...)
	if err != nil {
		return "", err
	}
	return output(cmd)
}

// EnterCommand is the command that Enter runs, for callers that want its input
// and output.
func (b *Box) EnterCommand(ctx context.Context, argv ...string) (*exec.Cmd, error) {
	pid, ok := b.worldPid()
	if !ok {
		return nil, errNotUp
	}
	return exec.CommandContext(ctx, "nsenter", append([]string{"--target", strconv.Itoa(pid), "--mount", "--net", "--uts", "--ipc", "--pid", "--"}, argv...)...), nil
}

var errNotUp = errors.New("box: it is not up; start it with `box up`")

// output runs cmd and returns what it wrote; an error carries its messages.
func output(cmd *exec.Cmd) (string, error) {
	var out, messages strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &messages
	if err := cmd.Run(); err != nil {
		said := strings.TrimSpace(messages.String())
		if said == "" {
			said = strings.TrimSpace(out.String())
		}
		return out.String(), fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, said)
	}
	return out.String(), nil
}

// Egress reads the counter of packets to an address outside the box.
func (b *Box) Egress(ctx context.Context) (egress.Counter, error) {
	pid, ok := b.worldPid()
	if !ok {
		return egress.Counter{}, errNotUp
	}
	return egress.Read(ctx, pid)
}

// ProveEgress shows that the counter counts, in a namespace of its own without
// a route out. It needs bin/box, which it runs in that namespace.
func (b *Box) ProveEgress(ctx context.Context) error {
	return egress.Prove(ctx, b.path("bin", "box"), b.inside)
}

// StopUnit and StartUnit end and start one of the box's daemons, by the names
// that Status lists: for tests of what happens without it.
func (b *Box) StopUnit(ctx context.Context, name string) error { return b.client.Stop(ctx, name) }

// StartUnit starts a daemon of the box again.
func (b *Box) StartUnit(ctx context.Context, name string) error { return b.start(ctx, name) }

// Poll calls done until it says so, fails, or the time is up; last tells what
// was still missing then.
func Poll(ctx context.Context, within time.Duration, what string, done func(context.Context) (ok bool, last string, err error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("not in %s", within))
	defer cancel()
	last := "not looked at yet"
	for {
		ok, now, err := done(ctx)
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if err == nil && ok {
			return nil
		}
		if now != "" {
			last = now
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w; last seen: %s", what, context.Cause(ctx), last)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// AnswersCommand is the hidden argument by which this program asks, inside the
// box, whether a URL answers.
const AnswersCommand = "answers"

// KubectlPath is the path of the box's kubectl, of the cluster's own release.
func (b *Box) KubectlPath() string { return b.path("bin", "kubectl") }
