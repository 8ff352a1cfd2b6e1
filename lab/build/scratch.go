package build

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
)

// ScratchImage writes an image of one static program, which is its entry point,
// in the archive format that `docker save` writes and every runtime imports.
// The bytes depend only on the program and the name.
func ScratchImage(w io.Writer, name, program string) error {
	body, err := os.ReadFile(program)
	if err != nil {
		return fmt.Errorf("image %s: %w", name, err)
	}
	var layer bytes.Buffer
	t := tar.NewWriter(&layer)
	if err := addFile(t, "entrypoint", 0o755, body); err != nil {
		return fmt.Errorf("image %s: %w", name, err)
	}
	if err := t.Close(); err != nil {
		return fmt.Errorf("image %s: %w", name, err)
	}
	digest := sha256.Sum256(layer.Bytes())
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       map[string]any{"Entrypoint": []string{"/entrypoint"}, "User": "65532:65532"},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(digest[:])}},
	})
	if err != nil {
		return err
	}
	configDigest := sha256.Sum256(config)
	configName := hex.EncodeToString(configDigest[:]) + ".json"
	manifest, err := json.Marshal([]map[string]any{{"Config": configName, "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	out := tar.NewWriter(w)
	for _, f := range []struct {
		name string
		body []byte
	}{{"layer.tar", layer.Bytes()}, {configName, config}, {"manifest.json", manifest}} {
		if err := addFile(out, f.name, 0o644, f.body); err != nil {
			return fmt.Errorf("image %s: %w", name, err)
		}
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("image %s: %w", name, err)
	}
	return nil
}

func addFile(t *tar.Writer, name string, mode int64, body []byte) error {
	if err := t.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(body)), Format: tar.FormatUSTAR}); err != nil {
		return err
	}
	_, err := t.Write(body)
	return err
}
