package emit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/berth-hpc/berth/renderer/compile"
	"github.com/berth-hpc/berth/renderer/compile/naming"
)

// ReadInputs reads a site's patches and sealed secrets from the repository at root. A secret in clear is an error that names
// its file, and never its content.
func ReadInputs(root, site string) (Inputs, error) {
	in := Inputs{Patches: map[string]map[string][]byte{}}
	for _, layer := range compile.LayerNames() {
		files, err := readFolder(root, naming.Patches(site, layer))
		if err != nil {
			return in, err
		}
		if len(files) > 0 {
			in.Patches[layer] = files
		}
	}
	if err := unknownPatchFolders(root, site); err != nil {
		return in, err
	}
	secrets, err := readFolder(root, naming.Secrets(site))
	if err != nil {
		return in, err
	}
	if err := CheckSealed(naming.Secrets(site), secrets); err != nil {
		return in, err
	}
	if len(secrets) > 0 {
		if _, ok := secrets["kustomization.yaml"]; !ok {
			return in, fmt.Errorf("%s: kustomization.yaml is missing; list the secrets in it under its resources key", naming.Secrets(site))
		}
		in.Secrets = secrets
	}
	return in, nil
}

// readFolder reads the YAML files of a folder; a folder that does not exist has none.
func readFolder(root, folder string) (map[string][]byte, error) {
	entries, err := os.ReadDir(filepath.Join(root, filepath.FromSlash(folder)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, entry := range entries {
		if entry.IsDir() || strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		if ext := filepath.Ext(entry.Name()); ext != ".yaml" && ext != ".yml" {
			continue
		}
		file := filepath.Join(root, filepath.FromSlash(folder), entry.Name())
		if out, err := leadsOut(root, file); err != nil {
			return nil, err
		} else if out {
			return nil, fmt.Errorf("%s/%s: a link that leads out of the repository, where Flux does not see; put the file itself here", folder, entry.Name())
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		files[entry.Name()] = data
	}
	return files, nil
}

func unknownPatchFolders(root, site string) error {
	folder := naming.Overlay(site) + "/patches"
	entries, err := os.ReadDir(filepath.Join(root, filepath.FromSlash(folder)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, layer := range compile.LayerNames() {
		known[layer] = true
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") || (entry.IsDir() && known[entry.Name()]) {
			continue
		}
		if ext := filepath.Ext(entry.Name()); !entry.IsDir() && ext != ".yaml" && ext != ".yml" {
			continue
		}
		return fmt.Errorf("%s/%s: not a layer, so nothing would apply it; put patches into %s/<layer>/ with one of: %s",
			folder, entry.Name(), folder, strings.Join(compile.LayerNames(), ", "))
	}
	return nil
}

// CheckSealed refuses Secrets whose values SOPS has not encrypted. It takes the files of a folder, and never shows a value.
func CheckSealed(folder string, files map[string][]byte) error {
	for _, name := range Tree(files).Paths() {
		for _, document := range strings.Split("\n"+string(files[name]), "\n---") {
			var secret struct {
				Kind       string         `json:"kind"`
				Data       map[string]any `json:"data"`
				StringData map[string]any `json:"stringData"`
				SOPS       map[string]any `json:"sops"`
			}
			if err := yaml.Unmarshal([]byte(document), &secret); err != nil {
				return fmt.Errorf("%s/%s: not YAML: %w", folder, name, err)
			}
			if secret.Kind != "Secret" {
				continue
			}
			if len(secret.SOPS) == 0 {
				return clearSecret(folder, name, "it carries no sops block")
			}
			for _, values := range []map[string]any{secret.Data, secret.StringData} {
				for key, value := range values {
					if text, ok := value.(string); !ok || !strings.HasPrefix(text, "ENC[") {
						return clearSecret(folder, name, fmt.Sprintf("the value of key %q is readable", key))
					}
				}
			}
		}
	}
	return nil
}

func clearSecret(folder, name, why string) error {
	return fmt.Errorf("%s/%s: a Secret in clear (%s); whoever can read the repository has it. Encrypt it (sops --encrypt --in-place %s/%s) and replace it if it was ever pushed",
		folder, name, why, folder, name)
}
