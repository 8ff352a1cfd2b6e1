package secrets

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"filippo.io/age"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"

	"github.com/berth-hpc/berth/renderer/compile/manifest"
	"github.com/berth-hpc/berth/renderer/compile/naming"
	"github.com/berth-hpc/berth/renderer/emit"
	"github.com/berth-hpc/berth/renderer/site"
)

// ErrExist is returned by Init for a site that has secrets already.
var ErrExist = errors.New("the site has secrets already")

// Init makes a site's secrets and puts them, sealed for the recipients, into clusters/<site>/secrets below root: all files or
// none. It returns the files' paths. A site that has secrets gives ErrExist: new keys would lock every pod and user out.
func Init(root string, s *site.Site, recipients []string) ([]string, error) {
	if len(recipients) == 0 {
		return nil, fmt.Errorf("%s.secrets.recipients: empty, so nobody could read the secrets again; put an age public key there (berth secrets key FILE makes one)", s.Name)
	}
	recipients = slices.Compact(slices.Sorted(slices.Values(recipients)))
	folder := filepath.Join(root, filepath.FromSlash(naming.Secrets(s.Name)))
	if entries, err := os.ReadDir(folder); err == nil && len(entries) > 0 {
		return nil, fmt.Errorf("%s: %w; new keys would lock running pods and users out. To start over on purpose, remove the folder first", naming.Secrets(s.Name), ErrExist)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	files, err := sealed(s, recipients)
	if err != nil {
		return nil, err
	}
	// Sealed only by name is not sealed: look at every value before anything reaches the disk.
	if err := emit.CheckSealed(naming.Secrets(s.Name), files); err != nil {
		return nil, fmt.Errorf("sealing failed, nothing was written: %w", err)
	}
	return writeFolder(folder, naming.Secrets(s.Name), files)
}

// sealed are the files of a new secrets folder.
func sealed(s *site.Site, recipients []string) (map[string][]byte, error) {
	clear, err := Generate(s)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	list := types.Kustomization{TypeMeta: types.TypeMeta{APIVersion: types.KustomizationVersion, Kind: types.KustomizationKind}}
	for _, secret := range clear {
		name := fileName(secret.Namespace, secret.Name)
		if files[name], err = sealSecret(secret, recipients); err != nil {
			return nil, err
		}
		list.Resources = append(list.Resources, name)
	}
	slices.Sort(list.Resources)
	text, err := yaml.Marshal(list)
	if err != nil {
		return nil, err
	}
	files["kustomization.yaml"] = text
	return files, nil
}

func fileName(namespace, secret string) string { return namespace + "-" + secret + ".yaml" }

// sealSecret is the sealed file of a Secret.
func sealSecret(secret *corev1.Secret, recipients []string) ([]byte, error) {
	object, err := manifest.New(secret)
	if err != nil {
		return nil, err
	}
	text, err := object.YAML()
	if err != nil {
		return nil, err
	}
	sealed, err := Seal(text, recipients)
	if err != nil {
		return nil, fmt.Errorf("seal Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return sealed, nil
}

// writeFolder makes the folder beside its place and renames it.
func writeFolder(folder, shown string, files map[string][]byte) ([]string, error) {
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return nil, err
	}
	staged, err := os.MkdirTemp(filepath.Dir(folder), ".secrets-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(staged)
	if err := os.Chmod(staged, 0o755); err != nil {
		return nil, err
	}
	var paths []string
	for _, name := range emit.Tree(files).Paths() {
		if err := os.WriteFile(filepath.Join(staged, name), files[name], 0o644); err != nil {
			return nil, err
		}
		paths = append(paths, path.Join(shown, name))
	}
	if err := os.Remove(folder); err != nil && !errors.Is(err, fs.ErrNotExist) { // an empty one may be there
		return nil, err
	}
	return paths, os.Rename(staged, folder)
}

// NewKey makes an age key pair, writes the identity to file for its owner alone, and returns the public key. A file that
// exists is an error: whoever loses an identity loses every secret sealed for it.
func NewKey(file string) (recipient string, err error) {
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		return "", fmt.Errorf("make an age key: %w", err)
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("%s: exists; berth does not overwrite a key, because every secret sealed for it would be lost", file)
	}
	if err != nil {
		return "", err
	}
	recipient = identity.Recipient().String()
	_, err = fmt.Fprintf(f, "# public key: %s\n%s\n", recipient, identity)
	return recipient, errors.Join(err, f.Close())
}

// Recipient reads the public key of an age identity file.
func Recipient(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	identities, err := age.ParseIdentities(f)
	if err != nil {
		return "", fmt.Errorf("%s: not an age identity file: %w", file, err)
	}
	var recipients []string
	for _, identity := range identities {
		if x, ok := identity.(*age.X25519Identity); ok {
			recipients = append(recipients, x.Recipient().String())
		}
	}
	if len(recipients) != 1 {
		return "", fmt.Errorf("%s: holds %d X25519 identities; one is needed (%s)", file, len(recipients), strings.Join(recipients, ", "))
	}
	return recipients[0], nil
}
