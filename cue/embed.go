// Package schema holds the CUE schema of a site, package site in *.cue beside this file, as the binary carries it.
// It evaluates nothing: package load does.
package schema

import "embed"

// Files are the schema's CUE files, without directories.
//
//go:embed *.cue
var Files embed.FS

const (
	// Module is the CUE module that the schema belongs to.
	Module = "github.com/berth-hpc/berth"
	// ImportPath is how a site imports the schema.
	ImportPath = Module + "/cue:site"
)
