package box

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
)

// Down ends the box: every process of it, and with them its mounts, networks and
// rules, which live in namespaces of the box's own. It then looks for anything
// that is left on the machine, and finding something is an error. The site's
// repository, the clone, its key, the volumes and the imported images stay for
// the next Up; purge removes them too.
func (b *Box) Down(ctx context.Context, purge bool) error {
	if os.Geteuid() != 0 {
		return errors.New("box: it needs root")
	}
	if err := b.clear(ctx); err != nil {
		return err
	}
	if purge {
		if err := os.RemoveAll(b.Dir); err != nil {
			return fmt.Errorf("box: %w", err)
		}
	}
	left, err := b.Leftovers(ctx)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("box: left behind:\n  %s", strings.Join(left, "\n  "))
	}
	return nil
}

// clear ends a box, or what a killed one left, and removes the state that does
// not outlive it.
func (b *Box) clear(ctx context.Context) error {
	if err := b.endWorld(ctx); err != nil {
		return err
	}
	if err := b.unmountAll(); err != nil {
		return err
	}
	if err := b.removeCgroups(); err != nil {
		return err
	}
	for _, dir := range []string{"run", "etcd", "kubelet", "flux", "opt"} {
		if err := os.RemoveAll(b.path(dir)); err != nil {
			return fmt.Errorf("box: %w", err)
		}
	}
	return b.removeMountPoints()
}

// unmountAll unmounts what is mounted below the box's directory on the machine.
// The box itself mounts in its own namespace only; this is for what anybody
// mounted by hand, because removing a directory must never reach through a mount.
func (b *Box) unmountAll() error {
	mounts, err := b.mountsBelow()
	if err != nil {
		return err
	}
	for i := len(mounts) - 1; i >= 0; i-- {
		if out, err := exec.Command("umount", mounts[i]).CombinedOutput(); err != nil {
			return fmt.Errorf("box: umount %s: %w: %s", mounts[i], err, bytes.TrimSpace(out))
		}
	}
	return nil
}

func (b *Box) mountsBelow() ([]string, error) {
	all, err := mountPoints()
	if err != nil {
		return nil, err
	}
	var below []string
	for _, m := range all {
		if strings.HasPrefix(m.target, b.Dir+"/") {
			below = append(below, m.target)
		}
	}
	return below, nil
}

// removeMountPoints removes the directories that Up had to make, if empty.
func (b *Box) removeMountPoints() error {
	file := b.path("made-directories")
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, dir := range strings.Fields(string(text)) {
		if entries, err := os.ReadDir(dir); err == nil && len(entries) == 0 && dir != b.Dir {
			if err := os.Remove(dir); err != nil {
				return fmt.Errorf("box: %w", err)
			}
		}
	}
	return os.Remove(file)
}

// Leftovers lists what a box has left on the machine: processes of its daemons
// and pods, mounts, control groups, network devices, packet filter rules and
// sets. Zombies do not count.
func (b *Box) Leftovers(ctx context.Context) ([]string, error) {
	left := b.living()
	mounts, err := b.mountsBelow()
	if err != nil {
		return nil, err
	}
	for _, m := range mounts {
		left = append(left, "mount "+m)
	}
	roots, err := cgroupRoots()
	if err != nil {
		return nil, err
	}
	for _, r := range roots {
		if dir := filepath.Join(r, b.cgroup()); exists(dir) {
			left = append(left, "control group "+dir)
		}
	}
	links, err := filepath.Glob("/sys/class/net/*")
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		if name := filepath.Base(l); name == "node0" || name == podBridge {
			left = append(left, "network device "+name)
		}
	}
	left = append(left, filterLeftovers(ctx)...)
	sort.Strings(left)
	return left, nil
}

// ours tells whether a process is one of the box's daemons: its program is the
// box's copy of this command or a shim of its containerd, or it was started with
// a path in the box's directory by one of its programs. A shell or an editor
// that merely looks at the directory is not.
func (b *Box) ours(exe string, words []string) bool {
	if exe == b.path("bin", "box") || strings.HasPrefix(exe, b.path("bin", "box")+" (deleted)") {
		return true
	}
	switch filepath.Base(exe) {
	case "hyperkube", "etcd", "containerd", "source-controller", "kustomize-controller", "kube-router":
	case "containerd-shim-runc-v2":
		return strings.Contains(strings.Join(words, " "), b.containerdSocket())
	default:
		return false
	}
	if len(words) > 1 && words[1] == "kubectl" || len(words) > 0 && filepath.Base(words[0]) == "kubectl" {
		return false // a user's
	}
	return strings.Contains(strings.Join(words, " "), b.Dir+"/")
}

// filterLeftovers lists packet filter tables, chains and sets with the names
// that the box's parts use. On a machine that runs another Kubernetes they may
// be that one's, but then they were there before; the box itself writes them
// inside its own network namespace only.
func filterLeftovers(ctx context.Context) []string {
	var left []string
	for _, c := range []struct {
		argv     []string
		patterns []string
	}{
		{[]string{"nft", "list", "tables"}, []string{"berth_egress", "kube-proxy"}},
		{[]string{"iptables-save"}, []string{":KUBE-ROUTER", ":KUBE-POD-FW"}},
		{[]string{"ipset", "list", "-name"}, []string{"KUBE-", "kube-router", "inet6:kube-router"}},
	} {
		out, err := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...).Output()
		if err != nil {
			continue // without the program there are no such rules
		}
		for _, line := range strings.Split(string(out), "\n") {
			for _, p := range c.patterns {
				if strings.Contains(line, p) {
					left = append(left, strings.Join(c.argv, " ")+": "+line)
					break
				}
			}
		}
	}
	return left
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
