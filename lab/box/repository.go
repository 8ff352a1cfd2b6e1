package box

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/berth-hpc/berth/lab/gitserver"
)

// GitServerCommand is the hidden argument by which the git server's unit runs
// this program.
const GitServerCommand = "git-server"

// Git runs git in the user's clone and returns its output.
func (b *Box) Git(ctx context.Context, args ...string) (string, error) {
	return b.gitIn(ctx, b.Clone(), args...)
}

func (b *Box) gitIn(ctx context.Context, dir string, args ...string) (string, error) {
	// Who commits for the box, and owners of directories that are not root's.
	identity := []string{"-c", "user.name=Berth lab", "-c", "user.email=lab@localhost", "-c", "safe.directory=*"}
	cmd := exec.CommandContext(ctx, "git", append(identity, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_TERMINAL_PROMPT=0")
	return output(cmd)
}

// Push commits everything in the clone, if there is a change, pushes, and asks
// Flux to look at once. It returns the commit that the server has now.
func (b *Box) Push(ctx context.Context, message string) (commit string, err error) {
	if _, err := b.Git(ctx, "add", "--all"); err != nil {
		return "", err
	}
	if _, err := b.Git(ctx, "diff", "--cached", "--quiet"); err != nil {
		if _, err := b.Git(ctx, "commit", "--quiet", "--message", message); err != nil {
			return "", err
		}
	}
	if _, err := b.Git(ctx, "push", "--quiet", "origin", "HEAD:main"); err != nil {
		return "", err
	}
	out, err := b.Git(ctx, "rev-parse", "HEAD")
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(out), b.Reconcile(ctx)
}

// Reconcile asks Flux to look at every source now instead of at its interval.
func (b *Box) Reconcile(ctx context.Context) error {
	_, err := b.Kubectl(ctx, "annotate", "--overwrite", "--all", "--namespace", "flux-system", "gitrepository.source.toolkit.fluxcd.io",
		"reconcile.fluxcd.io/requestedAt="+time.Now().UTC().Format(time.RFC3339Nano))
	return err
}

// syncRepository makes the site's repository and the user's clone, or brings
// into an existing clone what others pushed and newer commits of the checkout.
func (b *Box) syncRepository(ctx context.Context) error {
	if err := gitserver.InitBare(b.path("git", "lab.git")); err != nil {
		return err
	}
	if !exists(filepath.Join(b.Clone(), ".git")) {
		return b.makeClone(ctx)
	}
	if _, err := b.Git(ctx, "remote", "set-url", "origin", b.GitURL()); err != nil {
		return err
	}
	if _, err := b.gitIn(ctx, b.path("git", "lab.git"), "rev-parse", "--verify", "--quiet", "refs/heads/main"); err == nil {
		if err := b.merge(ctx, "the git server", "origin", "main"); err != nil {
			return err
		}
	}
	return b.merge(ctx, "the checkout", b.Source, "HEAD")
}

func (b *Box) makeClone(ctx context.Context) error {
	temp := b.path("clone.new")
	if err := os.RemoveAll(temp); err != nil {
		return err
	}
	if _, err := b.gitIn(ctx, b.Dir, "clone", "--quiet", "--no-hardlinks", "--no-tags", b.Source, temp); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"checkout", "--quiet", "-B", "main"},
		{"remote", "set-url", "origin", b.GitURL()},
		{"config", "branch.main.remote", "origin"},
		{"config", "branch.main.merge", "refs/heads/main"},
		// Git sends bodies above this in chunks, which the server must spool.
		{"config", "http.postBuffer", "67108864"},
	} {
		if _, err := b.gitIn(ctx, temp, args...); err != nil {
			return err
		}
	}
	if b.userHasNoIdentity(ctx) {
		for _, kv := range [][2]string{{"user.name", "Berth lab"}, {"user.email", "lab@localhost"}} {
			if _, err := b.gitIn(ctx, temp, "config", kv[0], kv[1]); err != nil {
				return err
			}
		}
	}
	return os.Rename(temp, b.Clone())
}

func (b *Box) userHasNoIdentity(ctx context.Context) bool {
	return exec.CommandContext(ctx, "git", "config", "--global", "user.email").Run() != nil
}

// merge merges a commit of another repository into the clone. Conflicts in
// generated files don't matter, they are rendered again; any other is the
// user's, and leaves the clone as it was.
func (b *Box) merge(ctx context.Context, whose, repository, ref string) error {
	if _, err := b.Git(ctx, "fetch", "--quiet", "--no-tags", repository, ref); err != nil {
		return err
	}
	if _, err := b.Git(ctx, "merge-base", "--is-ancestor", "FETCH_HEAD", "HEAD"); err == nil {
		return nil
	}
	if err := b.settleChanges(ctx, whose); err != nil {
		return err
	}
	_, mergeErr := b.Git(ctx, "merge", "--quiet", "--no-edit", "-m", "Merge "+whose, "FETCH_HEAD")
	if mergeErr == nil {
		return nil
	}
	conflicts, err := b.Git(ctx, "diff", "--name-only", "--diff-filter=U")
	if err != nil {
		return errors.Join(mergeErr, err)
	}
	var users []string
	for _, path := range strings.Fields(conflicts) {
		if !b.generated(path) {
			users = append(users, path)
			continue
		}
		if _, err := b.Git(ctx, "checkout", "--ours", "--", path); err != nil {
			// Deleted on one side: render decides whether it is there.
			if _, err := b.Git(ctx, "rm", "--quiet", "--force", "--ignore-unmatch", "--", path); err != nil {
				return err
			}
			continue
		}
		if _, err := b.Git(ctx, "add", "--", path); err != nil {
			return err
		}
	}
	if len(users) > 0 || conflicts == "" {
		_, _ = b.Git(ctx, "merge", "--abort")
		return fmt.Errorf("box: newer commits of %s conflict with the clone in %s; merge them there by hand (git pull %s %s): %w",
			whose, strings.Join(users, ", "), repository, ref, mergeErr)
	}
	_, err = b.Git(ctx, "commit", "--quiet", "--no-edit")
	return err
}

// settleChanges undoes changes to generated files that are not committed, which
// a render that ended half-way may have left; the user's own stop the merge.
func (b *Box) settleChanges(ctx context.Context, whose string) error {
	dirty, err := b.Git(ctx, "diff", "--name-only", "HEAD")
	if err != nil {
		return err
	}
	var users []string
	for _, path := range strings.Fields(dirty) {
		if !b.generated(path) {
			users = append(users, path)
			continue
		}
		if _, err := b.Git(ctx, "checkout", "--quiet", "HEAD", "--", path); err != nil {
			return err
		}
	}
	if len(users) > 0 {
		return fmt.Errorf("box: %s has changes that are not committed, and %s has newer commits to merge; commit or undo them:\n  %s",
			b.Clone(), whose, strings.Join(users, "\n  "))
	}
	return nil
}

// generated tells whether render writes the path of the repository.
func (b *Box) generated(path string) bool {
	return strings.HasPrefix(path, "overlays/") && !strings.Contains(path, "/patches/") ||
		strings.HasPrefix(path, "clusters/"+b.Site+"/")
}

// ageKey returns the box's own key pair for the site's secrets, made once.
func (b *Box) ageKey() (recipient string, err error) {
	text, err := os.ReadFile(b.AgeKeyFile())
	if errors.Is(err, os.ErrNotExist) {
		identity, err := age.GenerateX25519Identity()
		if err != nil {
			return "", fmt.Errorf("box: age key: %w", err)
		}
		body := fmt.Sprintf("# public key: %s\n%s\n", identity.Recipient(), identity)
		return identity.Recipient().String(), os.WriteFile(b.AgeKeyFile(), []byte(body), 0o600)
	}
	if err != nil {
		return "", err
	}
	identities, err := age.ParseIdentities(strings.NewReader(string(text)))
	if err != nil {
		return "", fmt.Errorf("box: %s: %w", b.AgeKeyFile(), err)
	}
	identity, ok := identities[0].(*age.X25519Identity)
	if !ok {
		return "", fmt.Errorf("box: %s: want an X25519 key", b.AgeKeyFile())
	}
	return identity.Recipient().String(), nil
}
