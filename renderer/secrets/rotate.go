package secrets

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/berth-hpc/berth/renderer/site"
)

// Rotation is what Rotate or Finish did.
type Rotation struct {
	Site  string   `json:"site"`
	Files []string `json:"files"`
	// Signs is the key that signs now, Next the one that will after the next rotation, Old those that still count as valid: names,
	// no keys.
	Signs string   `json:"signs"`
	Next  string   `json:"next,omitempty"`
	Old   []string `json:"old,omitempty"`
	// Published says that the site had no next key: there is one now, and the one that signed goes on.
	Published bool `json:"published,omitempty"`
}

// Rotate makes Slurm's next key the one that signs, in all Secrets of the site that hold it, and adds one for the rotation after
// it. The old ones stay valid until Finish. Who could read the files can read the new ones.
func Rotate(root string, s *site.Site, identity string, now time.Time) (Rotation, error) {
	var published bool
	report, err := replaceKeySet(root, s, identity, func(set keySet) (next keySet, err error) {
		next, published, err = set.rotate(now)
		return next, err
	})
	report.Published = published
	return report, err
}

// Finish drops the keys that signed before the last rotation. Without any it writes nothing.
func Finish(root string, s *site.Site, identity string) (Rotation, error) {
	return replaceKeySet(root, s, identity, func(set keySet) (keySet, error) { return set.finish(), nil })
}

// keySecret is an opened Secret with Slurm's keys.
type keySecret struct {
	sealedFile
	recipients []string
	secret     corev1.Secret
}

func replaceKeySet(root string, s *site.Site, identity string, change func(keySet) (keySet, error)) (Rotation, error) {
	if identity == "" {
		return Rotation{}, errors.New("the keys must be opened to be rotated: name an age identity file that can read them (--identity FILE)")
	}
	secrets, err := openKeySecrets(root, s, identity)
	if err != nil {
		return Rotation{}, err
	}
	old, err := readKeySet(secrets[0].secret.Data)
	if err != nil {
		return Rotation{}, fmt.Errorf("%s: %w", secrets[0].shown, err)
	}
	set, err := change(old)
	if err != nil {
		return Rotation{}, fmt.Errorf("%s: %w", secrets[0].shown, err)
	}
	report := Rotation{Site: s.Name, Files: []string{}}
	signer := set.signer()
	report.Signs = set.Keys[signer].ID
	for i, key := range set.Keys {
		if i < signer {
			report.Old = append(report.Old, key.ID)
		} else if i == signer+1 {
			report.Next = key.ID
		}
	}
	if slices.Equal(old.Keys, set.Keys) {
		return report, nil
	}
	files := map[string][]byte{}
	for _, one := range secrets {
		data, err := set.data()
		if err != nil {
			return Rotation{}, fmt.Errorf("%s: %w", one.shown, err)
		}
		maps.Copy(one.secret.Data, data)
		if files[one.name], err = sealSecret(&one.secret, one.recipients); err != nil {
			return Rotation{}, err
		}
	}
	report.Files, err = replaceFiles(root, s.Name, files)
	return report, err
}

// openKeySecrets opens the Secrets with Slurm's keys, which must be the same in all.
func openKeySecrets(root string, s *site.Site, identity string) ([]keySecret, error) {
	files, identities, err := sealedFiles(root, s.Name, identity)
	if err != nil {
		return nil, err
	}
	var opened []keySecret
	for _, namespace := range []string{s.Namespaces.Slurm, s.Namespaces.Workers} {
		name := fileName(namespace, s.Secrets.Names.AuthKey)
		i := slices.IndexFunc(files, func(f sealedFile) bool { return f.name == name })
		if i < 0 {
			return nil, fmt.Errorf("%s: is not there, so Slurm's key in it cannot be rotated; sealed files are named NAMESPACE-SECRET.yaml", name)
		}
		one := keySecret{sealedFile: files[i]}
		tree, recipients, err := one.load()
		if err != nil {
			return nil, err
		}
		one.recipients = recipients
		clear, err := open(tree, identities)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", one.shown, err)
		}
		if err := yaml.UnmarshalStrict(clear, &one.secret); err != nil {
			return nil, fmt.Errorf("%s: is no Secret that berth can write again", one.shown) // the parser's words may quote a value
		}
		if len(opened) > 0 && !maps.EqualFunc(opened[0].secret.Data, one.secret.Data, slices.Equal) {
			return nil, fmt.Errorf("%s and %s hold different keys: a rotation was cut short, or one file is older. Take both from the last commit (git checkout) and rotate again", opened[0].shown, one.shown)
		}
		opened = append(opened, one)
	}
	return opened, nil
}
