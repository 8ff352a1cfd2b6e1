package box

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/berth-hpc/berth/lab/build"
)

// Stage is how far Up goes.
type Stage string

// The stages, each including those before it.
const (
	// StageNode: a Kubernetes node on which pods run, with DNS and NetworkPolicies.
	StageNode Stage = "node"
	// StageFlux: also the git server and the Flux controllers.
	StageFlux Stage = "flux"
	// StageSite: also the platform's images and the site's repository, pushed and
	// reconciled until every layer is Ready.
	StageSite Stage = "site"
	// StageJobs: also a first job and a first two-node job.
	StageJobs Stage = "jobs"
)

// Stages lists the stages in order.
var Stages = []Stage{StageNode, StageFlux, StageSite, StageJobs}

func (s Stage) index() int {
	for i, t := range Stages {
		if s == t {
			return i
		}
	}
	return -1
}

// Up brings the box up as far as until. What is up already stays as it is, so
// a second call is quick; what a killed box left is cleared first.
func (b *Box) Up(ctx context.Context, until Stage) error {
	if until.index() < 0 {
		return fmt.Errorf("box: no stage %q; there are %v", until, Stages)
	}
	p := &progress{out: b.Out}
	begin := time.Now()
	if err := b.preflight(); err != nil {
		return err
	}
	if !b.answers(ctx) {
		if err := p.step("clear what an earlier box left", func() error { return b.clear(ctx) }); err != nil {
			return err
		}
	}
	if err := b.makeDirectories(); err != nil {
		return err
	}
	if err := b.build(ctx, p, until); err != nil {
		return err
	}
	if err := b.bringUpNode(ctx, p); err != nil {
		return err
	}
	for _, stage := range []struct {
		name Stage
		run  func(context.Context, *progress) error
	}{{StageFlux, b.bringUpFlux}, {StageSite, b.bringUpSite}, {StageJobs, b.firstJobs}} {
		if until.index() < stage.name.index() {
			break
		}
		if err := stage.run(ctx, p); err != nil {
			return err
		}
	}
	p.say("%-58s %7.1f s", "up", time.Since(begin).Seconds())
	return nil
}

// preflight finds what is missing before anything is started.
func (b *Box) preflight() error {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		return errors.New("box: it needs root on Linux, for namespaces and mounts")
	}
	var missing []string
	for _, program := range []string{
		"git", "go", "nsenter", "ip", "nft", "iptables", "ipset", "conntrack", "etcd", "containerd", "ctr", "runc", "mmdebstrap", "buildah",
		"/usr/lib/cni/bridge", "/usr/lib/cni/host-local", "/usr/lib/cni/loopback",
	} {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, program)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("box: not installed: %s; run lab/setup.sh", strings.Join(missing, ", "))
	}
	for _, bad := range []string{"/run/", "/var/log/", "/proc/", "/sys/", "/dev/"} {
		if strings.HasPrefix(b.Dir+"/", bad) {
			return fmt.Errorf("box: its directory can't be below %s, which the box covers with its own; set BERTH_LAB_DIR", bad)
		}
	}
	// Modules that a distribution's kernel loads on demand only; where they are
	// built in, or there is no modprobe, there is nothing to do.
	_ = exec.Command("modprobe", "-a", "br_netfilter", "overlay", "nf_conntrack", "ip_set", "xt_set").Run()
	return nil
}

func (b *Box) makeDirectories() error {
	for _, dir := range []string{"bin", "conf", "run", "log", "etcd", "kubelet", "containerd", "opt", "flux", "git", "storage"} {
		mode := os.FileMode(0o755)
		if dir == "conf" || dir == "etcd" {
			mode = 0o700
		}
		if err := os.MkdirAll(b.path(dir), mode); err != nil {
			return err
		}
	}
	for _, v := range []struct {
		name string
		uid  int
		mode os.FileMode
	}{{"state", 64030, 0o700}, {"database", 64032, 0o700}, {"home", 0, 0o755}, {"shared", 0, os.ModeSticky | 0o777}} {
		dir := b.path("storage", v.name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := errors.Join(os.Chown(dir, v.uid, v.uid), os.Chmod(dir, v.mode)); err != nil {
			return err
		}
	}
	return nil
}

// build builds the control plane, one program after the other: each uses all
// the cores there are.
func (b *Box) build(ctx context.Context, p *progress, until Stage) error {
	var kubernetes string
	for _, s := range []struct {
		stage Stage
		what  string
		do    func() (string, error)
	}{
		{StageNode, "build Kubernetes " + strings.TrimPrefix(build.KubernetesVersion, "v"), func() (string, error) {
			path, err := b.builder.Hyperkube(ctx)
			kubernetes = path
			return path, err
		}},
		{StageFlux, "build Flux", func() (string, error) { f, err := b.builder.Flux(ctx); return f.SourceController, err }},
		{StageNode, "build DNS", func() (string, error) { return b.builder.DNS(ctx) }},
		{StageNode, "build kube-router", func() (string, error) { return b.builder.KubeRouter(ctx) }},
		{StageNode, "build pause", func() (string, error) { return b.builder.Pause(ctx) }},
	} {
		if until.index() < s.stage.index() {
			continue
		}
		if err := p.step(s.what, func() error { _, err := s.do(); return err }); err != nil {
			return err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := link(kubernetes, b.path("bin", "kubectl")); err != nil {
		return err
	}
	// A copy: the checkout's bin/box may be rebuilt while the box runs.
	return copyFile(self, b.path("bin", "box"))
}

// bringUpNode starts the control plane and the node and waits until pods run.
func (b *Box) bringUpNode(ctx context.Context, p *progress) error {
	if err := b.writeConfig(); err != nil {
		return err
	}
	if _, up := b.worldPid(); !up {
		if err := p.step("make the box's namespaces", func() error {
			if err := b.makeCgroups(); err != nil {
				return err
			}
			return b.startWorld(ctx)
		}); err != nil {
			return err
		}
	}
	err := together(
		func() error {
			return p.step("start etcd and the API server", func() error {
				if err := b.start(ctx, "etcd", "kube-apiserver"); err != nil {
					return err
				}
				return b.waitAPI(ctx)
			})
		},
		func() error {
			return p.step("start containerd", func() error {
				if err := b.startContainerd(ctx); err != nil {
					return err
				}
				return b.scratchImages(ctx)
			})
		},
	)
	if err != nil {
		return err
	}
	return p.step("start the node, its DNS and its network policies", func() error {
		if err := b.start(ctx, "kubelet", "kube-controller-manager", "kube-scheduler", "kube-proxy", "gpu-plugin"); err != nil {
			return err
		}
		objects, err := baseObjects()
		if err != nil {
			return err
		}
		if err := b.Apply(ctx, objects); err != nil {
			return err
		}
		return together(
			func() error { return b.waitRollout(ctx, "kube-system", "deployment/coredns", 3*time.Minute) },
			func() error {
				if err := b.waitCards(ctx); err != nil {
					return err
				}
				// It gives up where the node is not registered yet.
				return b.start(ctx, "kube-router")
			},
		)
	})
}

// bringUpFlux starts the git server and the Flux controllers.
func (b *Box) bringUpFlux(ctx context.Context, p *progress) error {
	return p.step("start the git server and Flux", func() error {
		flux, err := b.builder.Flux(ctx)
		if err != nil {
			return err
		}
		args := []string{"apply", "--server-side", "--force-conflicts", "--field-manager=berth-lab"}
		for _, dir := range flux.CRDs {
			args = append(args, "-f", dir)
		}
		if _, err := b.Kubectl(ctx, args...); err != nil {
			return err
		}
		if _, err := b.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=2m", "crd",
			"gitrepositories.source.toolkit.fluxcd.io", "kustomizations.kustomize.toolkit.fluxcd.io"); err != nil {
			return err
		}
		if err := b.start(ctx, "git-server", "source-controller", "kustomize-controller"); err != nil {
			return err
		}
		for _, url := range []string{"http://127.0.0.1:9440/readyz", "http://127.0.0.1:9442/readyz", "http://127.0.0.1:" + gitPort + "/"} {
			if err := b.waitInside(ctx, url); err != nil {
				return err
			}
		}
		return nil
	})
}

// waitAPI waits until the API server says that it is ready.
func (b *Box) waitAPI(ctx context.Context) error {
	text, err := os.ReadFile(b.path("pki", "ca.crt"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	client := &http.Client{
		Timeout:   10 * time.Second,
		Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}},
	}
	return Poll(ctx, 3*time.Minute, "API server", func(ctx context.Context) (bool, string, error) {
		resp, err := client.Get("https://127.0.0.1:" + b.APIPort + "/readyz")
		if err != nil {
			return false, err.Error(), nil
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode == http.StatusOK, string(body), nil
	})
}

// waitInside waits until something inside the box answers HTTP, whatever it says.
func (b *Box) waitInside(ctx context.Context, url string) error {
	return Poll(ctx, 2*time.Minute, url, func(ctx context.Context) (bool, string, error) {
		out, err := b.Enter(ctx, b.path("bin", "box"), AnswersCommand, url)
		if err != nil {
			return false, err.Error(), nil
		}
		return true, out, nil
	})
}

func (b *Box) waitRollout(ctx context.Context, namespace, what string, within time.Duration) error {
	_, err := b.Kubectl(ctx, "--namespace", namespace, "rollout", "status", what, "--timeout", within.String())
	return err
}

// waitCards waits until the kubelet has taken the fake cards in.
func (b *Box) waitCards(ctx context.Context) error {
	return Poll(ctx, 3*time.Minute, "node "+NodeName+" with its cards", func(ctx context.Context) (bool, string, error) {
		out, err := b.Kubectl(ctx, "get", "node", NodeName, "-o",
			`jsonpath={.status.allocatable.nvidia\.com/gpu} {.status.conditions[?(@.type=="Ready")].status}`)
		if err != nil {
			return false, err.Error(), nil
		}
		return strings.TrimSpace(out) == fmt.Sprintf("%d True", b.Cards), out, nil
	})
}

func link(target, path string) error {
	if old, err := os.Readlink(path); err == nil && old == target {
		return nil
	}
	temp := path + ".new"
	_ = os.Remove(temp)
	if err := os.Symlink(target, temp); err != nil {
		return err
	}
	return os.Rename(temp, path)
}

func copyFile(from, to string) error {
	if from == to {
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	return os.Rename(to+".new", filepath.Clean(to))
}
