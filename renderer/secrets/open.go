package secrets

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	fileage "filippo.io/age"
	"github.com/getsops/sops/v3"
	"github.com/getsops/sops/v3/aes"
	"github.com/getsops/sops/v3/age"
	"github.com/getsops/sops/v3/config"
	sopsyaml "github.com/getsops/sops/v3/stores/yaml"
	"github.com/google/renameio/v2"

	"github.com/berth-hpc/berth/renderer/compile/naming"
	"github.com/berth-hpc/berth/renderer/emit"
	"github.com/berth-hpc/berth/renderer/site"
)

// Sealed is a sealed file of a site, and who can read it.
type Sealed struct {
	File       string   `json:"file"`
	Recipients []string `json:"recipients"`
	// Strangers can read it but are not in the site's secrets.recipients; Without are there and cannot read it.
	Strangers []string `json:"strangers,omitempty"`
	Without   []string `json:"without,omitempty"`
	// Opens says whether the identity that was given opens it, and that nobody changed it since it was sealed; left out: none was
	// given.
	Opens *bool `json:"opens,omitempty"`
	// Problem is why the file is no sealed Secret, or what is wrong with it; "" where nothing is.
	Problem string `json:"problem,omitempty"`
}

// Right reports whether exactly the site's recipients can read the file, and nothing else is wrong with it.
func (s Sealed) Right() bool {
	return len(s.Strangers) == 0 && len(s.Without) == 0 && s.Problem == "" && (s.Opens == nil || *s.Opens)
}

// Doctor says who can read each sealed file of a site. With an identity it also tries to open them; it shows no value.
func Doctor(root string, s *site.Site, identity string) ([]Sealed, error) {
	files, identities, err := sealedFiles(root, s.Name, identity)
	if err != nil {
		return nil, err
	}
	var report []Sealed
	for _, file := range files {
		one := Sealed{File: file.shown}
		one.examine(file.text, s.Secrets.Recipients, identities)
		report = append(report, one)
	}
	return report, nil
}

func (s *Sealed) examine(text []byte, wanted []string, identities age.ParsedIdentities) {
	tree, err := store().LoadEncryptedFile(text)
	if err != nil {
		s.Problem = "not sealed: " + err.Error()
		return
	}
	if s.Recipients, err = recipientsOf(tree); err != nil {
		s.Problem = err.Error()
	}
	for _, r := range s.Recipients {
		if !slices.Contains(wanted, r) {
			s.Strangers = append(s.Strangers, r)
		}
	}
	for _, r := range wanted {
		if !slices.Contains(s.Recipients, r) {
			s.Without = append(s.Without, r)
		}
	}
	if identities == nil {
		return
	}
	_, err = open(tree, identities)
	opens := err == nil
	s.Opens = &opens
	if err != nil && s.Problem == "" {
		s.Problem = err.Error()
	}
}

// Reseal seals the site's secrets for its recipients, with an identity that can read them now. A file that exactly these can read
// keeps its bytes; the values stay in all. It returns the files that it wrote. Whoever could read them before still knows the
// values: they can only be kept from what is sealed later.
func Reseal(root string, s *site.Site, identity string) ([]string, error) {
	if len(s.Secrets.Recipients) == 0 {
		return nil, fmt.Errorf("%s.secrets.recipients: empty, so nobody could read the secrets again", s.Name)
	}
	sealed, identities, err := sealedFiles(root, s.Name, identity)
	if err != nil {
		return nil, err
	}
	wanted := slices.Sorted(slices.Values(s.Secrets.Recipients))
	files := map[string][]byte{}
	for _, file := range sealed {
		tree, have, err := file.load()
		if err != nil {
			return nil, err
		}
		if slices.Equal(slices.Sorted(slices.Values(have)), wanted) {
			continue
		}
		clear, err := open(tree, identities)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file.shown, err)
		}
		if files[file.name], err = Seal(clear, wanted); err != nil {
			return nil, fmt.Errorf("%s: %w", file.shown, err)
		}
	}
	// Files that are written and those that are not yet are all readable by those who were; a second run does the rest.
	return replaceFiles(root, s.Name, files)
}

// replaceFiles writes new bytes of sealed files, each whole or not at all, after a look that nothing in them is in clear.
func replaceFiles(root, name string, files map[string][]byte) ([]string, error) {
	if err := emit.CheckSealed(naming.Secrets(name), files); err != nil {
		return nil, fmt.Errorf("sealing failed, nothing was written: %w", err)
	}
	var written []string
	for _, file := range emit.Tree(files).Paths() {
		shown := path.Join(naming.Secrets(name), file)
		if err := renameio.WriteFile(filepath.Join(root, filepath.FromSlash(shown)), files[file], 0o644); err != nil {
			return written, err
		}
		written = append(written, shown)
	}
	return written, nil
}

func store() *sopsyaml.Store { return sopsyaml.NewStore(&config.YAMLStoreConfig{Indent: 2}) }

// sealedFile is one of a site's sealed files.
type sealedFile struct {
	name, shown string // in its folder, and from the repository's root
	text        []byte
}

// load reads what of a file is not sealed, and for whom the rest is.
func (f sealedFile) load() (sops.Tree, []string, error) {
	tree, err := store().LoadEncryptedFile(f.text)
	if err != nil {
		return sops.Tree{}, nil, fmt.Errorf("%s: not sealed: %w", f.shown, err)
	}
	recipients, err := recipientsOf(tree)
	if err != nil {
		return sops.Tree{}, nil, fmt.Errorf("%s: %w", f.shown, err)
	}
	return tree, recipients, nil
}

// sealedFiles reads a site's sealed files, and the identities of a file to open them with; none without one.
func sealedFiles(root, site, identity string) ([]sealedFile, age.ParsedIdentities, error) {
	folder := naming.Secrets(site)
	entries, err := os.ReadDir(filepath.Join(root, filepath.FromSlash(folder)))
	if err != nil && !os.IsNotExist(err) {
		return nil, nil, err
	}
	var files []sealedFile
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".yaml") || e.Name() == "kustomization.yaml" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(folder), e.Name()))
		if err != nil {
			return nil, nil, err
		}
		files = append(files, sealedFile{name: e.Name(), shown: path.Join(folder, e.Name()), text: text})
	}
	if len(files) == 0 {
		return nil, nil, fmt.Errorf("%s: no sealed secrets; berth secrets init %s makes them", folder, site)
	}
	identities, err := readIdentities(identity)
	return files, identities, err
}

// readIdentities reads an age identity file; nil without one.
func readIdentities(file string) (age.ParsedIdentities, error) {
	if file == "" {
		return nil, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	identities, err := fileage.ParseIdentities(f)
	if err != nil {
		return nil, fmt.Errorf("%s: not an age identity file: %w", file, err)
	}
	return identities, nil
}

// recipientsOf are the age public keys that a file is sealed for. Another kind of key is an error, which names it.
func recipientsOf(tree sops.Tree) ([]string, error) {
	var recipients, others []string
	for _, group := range tree.Metadata.KeyGroups {
		for _, key := range group {
			if mine, is := key.(*age.MasterKey); is {
				recipients = append(recipients, mine.Recipient)
			} else {
				others = append(others, key.TypeToIdentifier()+" "+key.ToString())
			}
		}
	}
	if len(others) > 0 {
		return recipients, fmt.Errorf("also sealed for keys that are no age keys: %s", strings.Join(others, ", "))
	}
	return recipients, nil
}

// open gives the manifest in clear, after it made sure that nobody changed it since it was sealed.
func open(tree sops.Tree, identities age.ParsedIdentities) ([]byte, error) {
	var dataKey []byte
	for _, group := range tree.Metadata.KeyGroups {
		for _, key := range group {
			mine, is := key.(*age.MasterKey)
			if !is || dataKey != nil {
				continue
			}
			identities.ApplyToMasterKey(mine)
			if found, err := mine.Decrypt(); err == nil {
				dataKey = found
			}
		}
	}
	if dataKey == nil {
		return nil, errors.New("the identity does not open it: it is of none of the recipients")
	}
	cipher := aes.NewCipher()
	computed, err := tree.Decrypt(dataKey, cipher)
	if err != nil {
		return nil, fmt.Errorf("decrypt: %w", err)
	}
	sealed, err := cipher.Decrypt(tree.Metadata.MessageAuthenticationCode, dataKey, tree.Metadata.LastModified.Format(time.RFC3339))
	if err != nil || sealed != computed {
		return nil, errors.New("its authentication code is wrong: somebody changed it after it was sealed")
	}
	return store().EmitPlainFile(tree.Branches)
}
