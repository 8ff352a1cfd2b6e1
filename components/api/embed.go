// Package api embeds the CustomResourceDefinitions of Berth's kinds, so that whoever renders or installs them takes the
// same text that the types in v1alpha1 were generated to.
package api

import (
	"embed"
	"fmt"
	"io/fs"
	"sort"
)

//go:embed crds/*.yaml
var files embed.FS

// CRDs returns the CustomResourceDefinitions as YAML, file name to text.
func CRDs() map[string][]byte {
	names, err := fs.Glob(files, "crds/*.yaml")
	if err != nil { // the pattern is a constant
		panic(fmt.Sprintf("list the embedded CustomResourceDefinitions: %v", err))
	}
	sort.Strings(names)
	crds := make(map[string][]byte, len(names))
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil { // the name came from the same file system
			panic(fmt.Sprintf("read the embedded %s: %v", name, err))
		}
		crds[name[len("crds/"):]] = text
	}
	return crds
}
