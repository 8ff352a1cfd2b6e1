package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/berth-hpc/berth/lab/box"
)

// edited are the paths of the site's repository that people edit; the rest is rendered from them.
var edited = []string{":(glob)clusters/*.cue", "cue", "cue.mod", ":(glob)overlays/**/patches/**"}

// slurmRelease is the release of Slurm (slurm.version) that the tests are to run with; empty is the checkout's own.
func slurmRelease() string { return os.Getenv("BERTH_E2E_SLURM") }

// upgradeTo is the release that TestUpgradeSlurm is to upgrade the box to.
func upgradeTo() string { return os.Getenv("BERTH_E2E_UPGRADE") }

// followCheckout pushes the checkout's site to a box that somebody has pushed another one to, as the README invites to: the tests edit the
// site as committed, with the release of Slurm that they are to run with. It returns what puts the other one back, nil if there was none
// or if its release of Slurm is one that there is no way back to.
func followCheckout(ctx context.Context, b *box.Box) (putBack func(context.Context) error, err error) {
	temp, err := os.MkdirTemp("", "site")
	if err != nil {
		return nil, err
	}
	defer func() {
		if putBack == nil {
			os.RemoveAll(temp)
		}
	}()
	s := &site{r: &run{ctx: ctx, box: b}, dir: filepath.Join(temp, "lab")}
	all := func(commands ...[]string) error {
		for _, argv := range commands {
			if _, err := s.command(argv...); err != nil {
				return err
			}
		}
		return nil
	}
	head := func() (string, error) {
		out, err := s.command("git", "rev-parse", "HEAD")
		return strings.TrimSpace(out), err
	}

	if err := os.Mkdir(s.dir, 0o755); err != nil {
		return nil, err
	}
	if err := all([]string{"git", "clone", "--quiet", b.GitURL(), "."},
		[]string{"git", "config", "user.name", "e2e"}, []string{"git", "config", "user.email", "e2e@localhost"},
		[]string{"git", "-c", "safe.directory=*", "fetch", "--quiet", "--no-tags", b.Source, "HEAD"}); err != nil {
		return nil, err
	}
	if s.found, err = head(); err != nil {
		return nil, err
	}
	out, err := s.command(append([]string{"git", "diff", "--name-only", "--no-renames", "FETCH_HEAD", "HEAD", "--"}, edited...)...)
	if err != nil {
		return nil, err
	}
	differ, release := strings.Fields(out), slurmRelease()
	if len(differ) == 0 && release == "" {
		return nil, nil
	}
	if len(differ) > 0 {
		if err := all(append([]string{"git", "restore", "--source=FETCH_HEAD", "--staged", "--worktree", "--"}, differ...)); err != nil {
			return nil, err
		}
	}
	if release != "" {
		if err := s.addLines(`lab: slurm: version: "` + release + `"`); err != nil {
			return nil, err
		}
	}
	if out, err = s.command("git", "diff", "--name-only", "HEAD"); err != nil || out == "" {
		return nil, err
	}
	fmt.Printf("e2e: the box gets the site to test; it had another in %s\n", strings.Join(strings.Fields(out), ", "))
	if err := all([]string{"berth", "render", siteName}, []string{"git", "add", "--all"},
		[]string{"git", "commit", "--quiet", "--message", "Begin the tests with the site of the checkout"},
		[]string{"git", "push", "--quiet", "origin", "HEAD"}); err != nil {
		return nil, err
	}
	if s.head, err = head(); err != nil {
		return nil, err
	}
	if err := b.WaitReady(ctx, s.head, converges); err != nil {
		return nil, err
	}
	if release != "" || upgradeTo() != "" {
		return nil, nil
	}
	return func(ctx context.Context) error {
		defer os.RemoveAll(temp)
		s.r.ctx = ctx
		err := all([]string{"git", "fetch", "--quiet", "origin", "main"}, []string{"git", "reset", "--quiet", "--hard", "FETCH_HEAD"})
		if err != nil {
			return err
		}
		if s.head, err = head(); err != nil {
			return err
		}
		return s.restore()
	}, nil
}
