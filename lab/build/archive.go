package build

import (
	"archive/tar"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// WriteArchive writes the named images (name → manifest digest) of an OCI layout
// as one archive for `ctr images import`. Blobs that skip says are there already
// are left out, so that a changed script does not carry Debian along.
func WriteArchive(w io.Writer, layout string, images map[string]string, skip func(digest string) bool) error {
	t := tar.NewWriter(w)
	if err := addFile(t, "oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	var index struct {
		SchemaVersion int          `json:"schemaVersion"`
		Manifests     []descriptor `json:"manifests"`
	}
	index.SchemaVersion = 2
	written := map[string]bool{}
	for name, digest := range images {
		manifest, err := readManifest(layout, digest)
		if err != nil {
			return fmt.Errorf("archive: %s: %w", name, err)
		}
		index.Manifests = append(index.Manifests, descriptor{
			MediaType: manifest.MediaType, Digest: digest, Size: manifest.size,
			Annotations: map[string]string{"io.containerd.image.name": name},
		})
		blobs := []string{digest, manifest.Config.Digest}
		for _, l := range manifest.Layers {
			if !skip(l.Digest) {
				blobs = append(blobs, l.Digest)
			}
		}
		for _, d := range blobs {
			if written[d] {
				continue
			}
			written[d] = true
			if err := addBlob(t, layout, d); err != nil {
				return fmt.Errorf("archive: %s: %w", name, err)
			}
		}
	}
	text, err := json.Marshal(index)
	if err != nil {
		return err
	}
	if err := addFile(t, "index.json", 0o644, text); err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	return t.Close()
}

// manifest is what the lab needs of an image manifest.
type manifest struct {
	MediaType string       `json:"mediaType"`
	Config    descriptor   `json:"config"`
	Layers    []descriptor `json:"layers"`
	size      int64
}

func readManifest(layout, digest string) (manifest, error) {
	text, err := os.ReadFile(blobPath(layout, digest))
	if err != nil {
		return manifest{}, err
	}
	m := manifest{MediaType: "application/vnd.oci.image.manifest.v1+json", size: int64(len(text))}
	if err := json.Unmarshal(text, &m); err != nil {
		return manifest{}, fmt.Errorf("manifest %s: %w", digest, err)
	}
	return m, nil
}

func addBlob(t *tar.Writer, layout, digest string) error {
	f, err := os.Open(blobPath(layout, digest))
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	name := "blobs/" + strings.Replace(digest, ":", "/", 1)
	if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: info.Size(), Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err = io.Copy(t, f)
	return err
}

func blobPath(layout, digest string) string {
	return filepath.Join(layout, "blobs", strings.Replace(digest, ":", "/", 1))
}
