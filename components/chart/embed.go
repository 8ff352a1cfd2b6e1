// Package chart carries the slurm-platform Helm chart, so that berth renders it without a file system or a network. It
// holds files only; values come from renderer/compile, and the Helm SDK renders them.
package chart

import "embed"

// Files is the chart's tree, rooted at Dir. The prefix all: keeps templates/_helpers.tpl and .helmignore, which a plain
// pattern would leave out for their first character.
//
//go:embed all:slurm-platform
var Files embed.FS

// Dir is the chart's directory in Files.
const Dir = "slurm-platform"
