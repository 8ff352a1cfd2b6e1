package command

import (
	"path/filepath"
	"strings"
)

func hasSuffix(path, ending string) bool { return strings.EqualFold(filepath.Ext(path), ending) }

func dirOf(path string) string { return filepath.Dir(path) }

// csvField quotes what CSV needs quoted.
func csvField(s string) string {
	if strings.ContainsAny(s, ",\"\r\n") {
		return `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
	}
	return s
}
